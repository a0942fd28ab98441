"""Modules of PyTorch that Wisp has nothing to do for: tables of the names that programs touch, with what they answer and why."""

import collections.abc
import contextlib
import enum
import math
import re
import types
from importlib import import_module

from wisp._compat.answers import Answer, From, Nothing, Refusal, Unused, same
from wisp._compat.config import Config
from wisp._compat.inner import INNER
from wisp._compat.refused import REFUSED

_NO_DEVICE = {
    "is_available": Answer("False: Wisp runs on the CPU and on CUDA.", False),
    "is_initialized": Answer("False: there is no such device.", False),
    "device_count": Answer("0: there is no such device.", 0),
    "manual_seed": Answer("Nothing to seed.", None, "seed"),
    "manual_seed_all": Answer("Nothing to seed.", None, "seed"),
    "empty_cache": Answer("Nothing to free."),
    "synchronize": Answer("Nothing to wait for.", None, "device=None"),
    **same(
        "memory_allocated max_memory_allocated memory_reserved max_memory_reserved", Answer("0: there is no such device.", 0, "device=None")
    ),
    **same("reset_peak_memory_stats reset_max_memory_allocated", Answer("Nothing was counted.", None, "device=None")),
    "current_device": Answer("0: there is no such device.", 0),
    "is_bf16_supported": Answer("False: there is no such device.", False, "including_emulation=True"),
    **same("set_device get_device_name get_device_properties get_device_capability", Refusal("there is no such device")),
    **same("get_rng_state set_rng_state get_rng_state_all set_rng_state_all", Refusal("there is no such device")),
    **same("current_allocated_memory driver_allocated_memory recommended_max_memory", Answer("0: there is no such device.", 0)),
    "set_per_process_memory_fraction": Answer("Nothing to bound.", None, "fraction, device=None"),
    "is_current_stream_capturing": Answer("False: there is no such device.", False),
    **same("memory_stats", Answer("Nothing was counted.", None, "device=None", "{}")),
    "mem_get_info": Answer("No memory, free or not.", (0, 0), "device=None"),
    **same("current_stream set_stream", Refusal("there is no such device")),
    **same("Event Stream device", Refusal("there is no such device", is_class=True)),
}
_NO_ARCHIVES = "Wisp writes and reads no archives of code: save the state_dict with torch.save and ship the source beside it"
_NO_CALLS = (
    "Wisp calls no functions in other processes: use the collectives of torch.distributed, torch.multiprocessing, or a library for "
    "remote calls such as Ray"
)
_NO_SHARDED_SAFETENSORS = (
    "sharded checkpoints are written by FileSystemWriter; a whole model is written as safetensors by the safetensors library or "
    "wisp.utils.safetensors"
)
_LAUNCH = "start the ranks with `wisp launch` or torch.multiprocessing.spawn"
_NO_GRAPHS = "TorchScript has it; none is made here, since scripted code runs as Python."

# module -> its docstring, and its names or its class
STUBS = {
    "mps": ("`torch.mps` for programs that ask: Wisp has no MPS backend, so nothing is available.", _NO_DEVICE),
    "xpu": ("`torch.xpu` for programs that ask: Wisp has no XPU backend, so nothing is available.", _NO_DEVICE),
    "mps.event": ("Moments of a device that is not there.", {"Event": Refusal("there is no such device", is_class=True)}),
    "mtia": ("`torch.mtia` for programs that ask: there is no such device.", _NO_DEVICE),
    "package": (
        "`torch.package`: archives of code are not written or read.",
        {
            "PackageExporter": Refusal(_NO_ARCHIVES, is_class=True),
            "PackageImporter": Refusal(_NO_ARCHIVES, is_class=True),
            "PackageHeader": Unused("Not available."),
            "sys_importer": None,
        },
    ),
    "package.importer": ("The inner module.", {"sys_importer": None}),
    "_six": (
        "Names that programs written for PyTorch 1.x import from here.",
        {
            "container_abcs": collections.abc,
            "inf": math.inf,
            "nan": math.nan,
            "string_classes": (str, bytes),
            "int_classes": int,
            "PY3": True,
            "PY37": True,
        },
    ),
    "_subclasses": (
        "Parts of `torch._subclasses` that libraries ask.",
        same("FakeTensor FakeTensorMode", From("wisp._subclasses.fake_tensor")),
    ),
    "_subclasses.fake_tensor": (
        "Tensors without data do not exist here.",
        {
            "FakeTensor": Unused("No tensor is one."),
            "is_fake": Answer("False.", False, "x"),
            **same("FakeTensorMode FakeTensorConverter", Refusal('make tensors on the device "meta"', is_class=True)),
            "unset_fake_temporarily": Answer("A context that changes nothing.", Nothing()),
            "_is_tensor_constructor": Answer("Whether an operator makes tensors of a size.", False, "func"),
        },
    ),
    "_inductor": (
        "Settings of PyTorch's compiler back end that programs change.",
        {
            "cudagraph_mark_step_begin": Answer("Nothing to mark.", None),
            "list_mode_options": Answer("No options.", None, "mode=None, dynamic=None", "{}"),
            "list_options": Answer("No options.", None, "", "[]"),
            **same("aoti_compile_and_package aoti_load_package compile standalone_compile", Refusal("call torch.compile")),
        },
    ),
    "_inductor.config": ("Settings that are remembered, and without effect.", Config),
    "_dynamo": (
        "Names of PyTorch's compiler front end that programs touch.",
        {
            **same(
                """
                OptimizedModule allow_in_graph assume_constant_result disable explain is_compiling list_backends reset""",
                From("wisp.compiler"),
            ),
            "optimize": Answer("A decorator that returns the function as it is.", lambda f: f, "backend='inductor', **options"),
            "graph_break": Answer("Nothing to break.", None, "msg=''"),
            "mark_dynamic": Answer("Nothing to mark.", None, "t, index, **options"),
            "mark_static": Answer("Nothing to mark.", None, "t, index=None"),
            "mark_static_address": Answer("Nothing to mark.", None, "t, guard=True"),
            "is_dynamo_supported": Answer("False: nothing is traced.", False),
            **same("disallow_in_graph nonstrict_trace forbid_in_graph", Answer("The function itself.", None, "fn", "fn")),
            "override_optimization_hint": Answer("A context that changes nothing.", Nothing(), "*args"),
            **same("export lookup_backend", Refusal("use torch.export.export, or torch.compile")),
        },
    ),
    "_dynamo.config": ("Settings that are remembered, and without effect.", Config),
    "_dynamo.eval_frame": (
        "The class of compiled modules by its inner module.",
        {"OptimizedModule": From("wisp.compiler"), "is_dynamo_supported": From("wisp._dynamo")},
    ),
    "_dynamo.exc": (
        "Errors of PyTorch's compiler; none is raised.",
        same(
            "TorchDynamoException BackendCompilerFailed Unsupported InternalTorchDynamoError UserError TensorifyScalarRestartAnalysis "
            "TorchRuntimeError",
            Unused("Not raised.", RuntimeError),
        ),
    ),
    "_dynamo._trace_wrapped_higher_order_op": (
        "A context of PyTorch's compiler in which x[tensor] is traced; here indexing with tensors works anyway, in `vmap` too.",
        {"TransformGetItemToIndex": Unused("Changes nothing.", contextlib.nullcontext)},
    ),
    "_C": (
        "What programs take from PyTorch's extension module `torch._C`; Wisp's own is `wisp._core`.",
        {
            "_log_api_usage_once": Answer("Nothing is counted.", None, "event"),
            "_get_tracing_state": Answer("None: nothing is traced."),
            "_get_tracing_state_value": Answer("None: nothing is traced."),
            **same(
                """
                _jit_set_profiling_mode _jit_set_profiling_executor _jit_set_texpr_fuser_enabled _jit_set_nvfuser_enabled
                _jit_override_can_fuse_on_gpu _jit_override_can_fuse_on_cpu""",
                Answer("Nothing to set.", False, "mode"),
            ),
            "_jit_pass_inline": Answer("Nothing to do.", None, "graph"),
            "_get_privateuse1_backend_name": Answer("The name of a device that nobody defined.", "privateuseone"),
            "_cuda_isInBadFork": Answer("False: GPUs are found on first use.", False),
            "PyTorchFileReader": Refusal("use torch.load, which reads PyTorch's archives", is_class=True),
            **same("Graph Value Node ListType ScriptModule ScriptMethod ScriptFunction ScriptObject", Unused(_NO_GRAPHS)),
            **same("FunctionSchema Argument parse_schema", From("wisp._compat.schema")),
            "ErrorReport": Unused("Not raised.", Exception),
            "_is_tracing": Answer("False: nothing is traced.", False),
            "_dispatch_has_kernel_for_dispatch_key": Answer("False: there is no dispatcher.", False, "name, key"),
            "_dispatch_dump": Answer("Nothing: there is no dispatcher.", "", "name"),
            "_jit_get_operation": Refusal("call the operator of torch.ops"),
            "_get_cudnn_enabled": Answer("Whether cuDNN is used.", True),
            "_set_math_sdp_allow_fp16_bf16_reduction": Answer("Nothing to set.", None, "mode"),
            "_debug_only_display_vmap_fallback_warnings": Answer("Nothing to show.", None, "on"),
            "_show_config": From("wisp.__config__", "show"),
            "Tag": From("wisp._compat.helpers"),
            "_is_alias_of": Answer("Whether two tensors view one memory.", None, "a, b", "a.untyped_storage() == b.untyped_storage()"),
            "_is_torch_function_enabled": Answer("True.", True),
            "_unset_dispatch_mode": Answer("None: there are no such modes.", None, "mode"),
            "_get_dispatch_mode": Answer("None: there are no such modes.", None, "mode"),
            **same("_jit_can_fuse_on_gpu _jit_can_fuse_on_cpu", Answer("False.", False)),
            **same("_jit_set_nvfuser_guard_mode _jit_set_autocast_mode", Answer("Nothing to set.", False, "mode")),
            "PyTorchFileWriter": Refusal("use torch.save, which writes PyTorch's archives", is_class=True),
            **same("FloatType IntType StringType BoolType TensorType ListType TupleType OptionalType Type", Unused(_NO_GRAPHS)),
            **same("_has_xpu _has_mps _has_mkldnn _has_mkl _has_xnnpack", False),
            **same("_has_lapack _has_openmp _GLIBCXX_USE_CXX11_ABI", True),
        },
    ),
    "cuda.nvtx": (
        "Marks for NVIDIA's profiler: nothing is written.",
        {
            "range_push": Answer("Begin a range; its depth.", 0, "msg"),
            "range_pop": Answer("End the last range; its depth.", 0),
            "range_start": Answer("Begin a range; its handle.", 0, "msg"),
            "range_end": Answer("End a range.", None, "range_id"),
            "mark": Answer("Note a moment.", None, "msg"),
            "range": Answer("A range, as a context.", Nothing(), "msg, *args, **kwargs"),
        },
    ),
    "cuda.profiler": (
        "NVIDIA's profiler: nothing is started; use `torch.profiler`.",
        {
            "init": Answer("Nothing to set.", None, "output_file, flags=None, output_mode='key_value'"),
            "start": Answer("Nothing is started."),
            "stop": Answer("Nothing is stopped."),
            "profile": Answer("A context that changes nothing.", Nothing()),
        },
    ),
    "cuda.amp.common": (
        "What GPUs can do.",
        {"amp_definitely_not_available": Answer("Whether there is no GPU.", None, "", "not __import__('wisp').cuda.is_available()")},
    ),
    "cuda.amp.grad_scaler": (
        "The scaler under the name of its module.",
        {"GradScaler": From("wisp.cuda.amp"), "OptState": From("wisp.amp.grad_scaler")},
    ),
    "profiler.itt": (
        "Marks for Intel's profiler: nothing is written.",
        {
            "is_available": Answer("False.", False),
            **same("range_push mark", Answer("Nothing is written.", None, "msg")),
            "range_pop": Answer("Nothing is written."),
        },
    ),
    "jit.annotations": (
        "Type names that annotated programs import from here.",
        {**same("Dict List Optional Tuple Union", From("typing")), **{f"BroadcastingList{n}": From("typing", "List") for n in (1, 2, 3)}},
    ),
    "fx.experimental.symbolic_shapes": (
        "Names of symbolic sizes: sizes are plain numbers here.",
        {
            "is_nested_int": From("wisp.nested._tensor"),
            **same(
                "guard_size_oblivious guard_or_true guard_or_false guard_scalar statically_known_true guard_bool",
                Answer("The truth of the expression.", None, "expr", "bool(expr)"),
            ),
            "guard_int": Answer("The number.", None, "value", "int(value)"),
            **same("is_symbolic has_free_symbols", Answer("False.", False, "value")),
            **same("free_symbols free_unbacked_symbols", set),
            "ShapeEnv": Unused("What is known of sizes: all."),
            **same("GuardOnDataDependentSymNode ConstraintViolationError", Unused("Not raised.", RuntimeError)),
            **same(
                "DivideByKey RelaxedUnspecConstraint StatelessSymbolicContext StrictMinMaxConstraint SymbolicContext", Unused("Not used.")
            ),
            "DimDynamic": enum.Enum("DimDynamic", "DYNAMIC DUCK STATIC UNBACKED INFER_STRIDE"),
            "optimization_hint": Answer("The number.", None, "value, fallback=None", "int(value)"),
        },
    ),
    "multiprocessing.reductions": (
        "How tensors are pickled for other processes, under PyTorch's path.",
        {
            "ForkingPickler": From("multiprocessing.reduction"),
            **same("rebuild_tensor reduce_storage reduce_tensor", From("wisp.multiprocessing.shared")),
        },
    ),
    "utils.model_zoo": (
        "The old place of `wisp.hub.load_state_dict_from_url`.",
        {"load_url": From("wisp.hub", "load_state_dict_from_url"), "tqdm": From("wisp._compat.helpers")},
    ),
    "utils.data._utils.pin_memory": (
        "Pinned memory, by PyTorch's path.",
        {
            "pin_memory": From("wisp.utils.data.dataloader", "_pinned"),
            "_pin_memory_loop": Refusal("the loader pins batches where they arrive, without a thread of its own"),
        },
    ),
    "utils.data._utils.collate": (
        "Joining samples, under PyTorch's path.",
        {
            **same(
                """
                collate collate_float_fn collate_int_fn collate_numpy_array_fn collate_numpy_scalar_fn collate_str_fn collate_tensor_fn
                default_collate default_collate_fn_map default_convert""",
                From("wisp.utils.data._collate"),
            ),
            "np_str_obj_array_pattern": re.compile(r"[SaUO]"),  # dtypes of NumPy that do not become tensors
        },
    ),
    "distributed.rpc": (
        "`torch.distributed.rpc`: calls of functions in other processes, which Wisp does not make; what is called says so.",
        {
            "is_available": Answer("False.", False),
            **same("init_rpc rpc_sync rpc_async remote shutdown get_worker_info", Refusal(_NO_CALLS)),
            **same("RpcBackendOptions TensorPipeRpcBackendOptions WorkerInfo RRef PyRRef", Refusal(_NO_CALLS, is_class=True)),
            "BackendType": types.SimpleNamespace(TENSORPIPE="TENSORPIPE"),
        },
    ),
    "distributed.rpc.functions": (
        "The decorator of functions that other processes call.",
        {"async_execution": Answer("The function itself: it is called here alone.", None, "fn", "fn")},
    ),
    "distributed.rpc.api": (
        "The inner module.",
        {
            "_all_gather": Refusal(_NO_CALLS),
            "_require_initialized": Answer("A function that refuses.", Refusal(_NO_CALLS).make("api", "wisp.distributed.rpc"), "function"),
            "_is_current_rpc_agent_set": Answer("False.", False),
            "_barrier": Refusal(_NO_CALLS),
            "UNSET_RPC_TIMEOUT": -1.0,
        },
    ),
    "distributed.checkpoint.hf_storage": (
        "Sharded checkpoints as safetensors files: not written or read; whole models are, by `wisp.utils.safetensors`.",
        same("HuggingFaceStorageReader HuggingFaceStorageWriter", Refusal(_NO_SHARDED_SAFETENSORS, is_class=True)),
    ),
    "distributed._composable": ("Older paths of `fully_shard` and `checkpoint`.", {}),
    "distributed.elastic": ("What programs written for torchrun import.", {}),
    "distributed.elastic.utils": ("Help for programs written for torchrun.", {}),
    "distributed.elastic.utils.distributed": (
        "A port that nobody listens on.",
        {"get_free_port": From("wisp.distributed.run", "_free_port")},
    ),
    "distributed.elastic.multiprocessing": (
        "What programs written for torchrun import.",
        {"Std": enum.Flag("Std", {"NONE": 0, "OUT": 1, "ERR": 2, "ALL": 3}), **same("start_processes", Refusal(_LAUNCH))},
    ),
    "distributed.launcher": (
        "How programs start ranks themselves.",
        same("LaunchConfig elastic_launch", From("wisp.distributed.launcher.api")),
    ),
    "distributed.launcher.api": ("The inner module.", same("LaunchConfig elastic_launch launch_agent", Refusal(_LAUNCH, is_class=True))),
    "distributed.elastic.multiprocessing.errors": (
        "The decorator with which programs for torchrun mark their main function.",
        {
            "ChildFailedError": Unused("Not raised: `wisp launch` ends with the status of the rank that failed.", Exception),
            "record": Answer(
                "The function itself: `wisp launch` shows the first failing rank's traceback without help.",
                None,
                "fn, error_handler=None",
                "fn",
            ),
        },
    ),
    "vision.ops.misc": (
        "The old place of some layers.",
        {
            **same("MLP Conv2dNormActivation FrozenBatchNorm2d Permute SqueezeExcitation", From("wisp.vision.ops.layers")),
            "ConvNormActivation": From("wisp.vision.ops.layers", "Conv2dNormActivation"),
        },
    ),
}
# further paths at which PyTorch has what is in another module here
PATHS = {
    "quantization": "ao.quantization",
    "_tensor_str": "_tensor.printing",
    "autograd.profiler_util": "profiler",
    "cuda.amp.autocast_mode": "cuda.amp",
    "cuda.comm": "nn.parallel.comm",
    "cuda.random": "cuda",
    "distributed._composable.fsdp": "distributed.fsdp",
    "distributed._tensor": "distributed.tensor",
    "distributed.constants": "distributed",
    "jit._script": "jit",
    "jit._trace": "jit",
    **{f"ao.quantization.{name}": "ao.quantization" for name in "fake_quantize observer qconfig stubs quantize fuse_modules".split()},
    "distributed._tensor.device_mesh": "distributed.device_mesh",
    "distributed.algorithms.ddp_comm_hooks.default": "distributed.algorithms.ddp_comm_hooks.default_hooks",
    **{f"quantization.{name}": "ao.quantization" for name in "fake_quantize observer qconfig stubs quantize fuse_modules".split()},
    "nn.quantized": "ao.nn.quantized",
    "nn.quantized.dynamic": "ao.nn.quantized.dynamic",
    "nn.qat": "ao.nn.qat",
    "nn.intrinsic": "ao.nn.intrinsic",
    "nn.intrinsic.qat": "ao.nn.intrinsic.qat",
    "jit.quantized": "ao.nn.quantized.dynamic",
    "nn.parallel.parallel_apply": "nn.parallel.scatter_gather",
    "nn.parallel.replicate": "nn.parallel.scatter_gather",
    "profiler.profiler": "profiler",
    "vision.models.segmentation.deeplabv3": "vision.models.segmentation",
    **{f"vision.models.segmentation.{name}": "vision.models.segmentation" for name in ("fcn", "_utils")},
    "vision.models.video.resnet": "vision.models.video",
    "vision.models.detection.image_list": "vision.models.detection.transform",
    **{f"vision.datasets.{name}": "vision.datasets.others" for name in "celeba coco fakedata stl10 svhn voc".split()},
    **{f"vision.datasets.{name}": "vision.datasets.folders" for name in "eurosat food101 imagenet omniglot oxford_iiit_pet".split()},
    "vision.datasets.caltech": "vision.datasets",
    **{
        f"vision.datasets.{name}": "vision.datasets.listed"
        for name in "cityscapes country211 dtd fer2013 fgvc_aircraft flowers102 gtsrb lsun moving_mnist places365 rendered_sst2 sbd "
        "semeion stanford_cars sun397 usps".split()
    },
    **{f"vision.ops.{name}": "vision.ops.losses" for name in "ciou_loss diou_loss giou_loss".split()},
    **{f"vision.ops.{name}": "vision.ops.layers" for name in "drop_block focal_loss".split()},
    "vision.io.image": "vision.io",
    "vision.version": "vision",
    **{f"vision.transforms.{name}": "vision.transforms.functional" for name in ("_functional_tensor", "_functional_pil")},
}
STUBS.update(REFUSED)
STUBS.update(INNER)
STUBS.update({path: (f"Another path of `wisp.{home}`.", f"wisp.{home}") for path, home in PATHS.items()})


def fill(module, stub):
    """Give a module what its table has."""
    module.__doc__, names = STUBS[stub]
    namespace, name_of_module = vars(module), f"wisp.{stub}"
    if names is Config:
        module.__class__ = Config
        return
    if isinstance(names, str):
        same = import_module(names)
        namespace.update(__getattr__=lambda name: getattr(same, name), __dir__=lambda: dir(same))
        if hasattr(same, "__all__"):
            namespace["__all__"] = same.__all__
        return
    namespace.update({name: what.make(name, name_of_module) if hasattr(what, "make") else what for name, what in names.items()})
    below = {name[len(stub) + 1 :] for name in STUBS if name.startswith(stub + ".")}

    def __getattr__(name):
        if name in below:
            return import_module(f"{name_of_module}.{name}")
        raise AttributeError(f"module {name_of_module!r} has no attribute {name!r}")

    namespace.setdefault("__getattr__", __getattr__)
