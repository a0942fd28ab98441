"""Inner modules of PyTorch's that libraries import, as tables like those of `stubs.py`: parts of its compiler, of its loader, of its
process groups. What is behind them exists here elsewhere, or answers that there is nothing of it."""

import enum
import logging
import re
import types
import typing

from wisp._compat.answers import Answer, From, Nothing, Refusal, Unused, same
from wisp._compat.config import Config

_NO_COMPILER = "Wisp has no compiler whose parts could be called"
_NO_PARTS = "this is a part of PyTorch's own loader, which Wisp's does not have"
_NO_GROUP = "groups are made by init_process_group: under a launcher, or with init_method=, or store="
_NO_PIPELINE = "Wisp has no pipelines over processes"
_decorator = Answer("The decorator itself: what is decorated stays as it is.", None, "*args, **kwargs", "lambda f: f")

INNER = {
    "_compile": ("A decorator by its inner path.", {"_disable_dynamo": From("wisp.compiler", "disable")}),
    "_functorch": ("Inner parts of `torch.func`.", {}),
    "_functorch.vmap": (
        "Inner parts of `vmap`.",
        {
            "vmap": From("wisp.func"),
            "Tensor": From("wisp"),
            "_broadcast_to_and_flatten": From("wisp.utils._pytree"),
            **same("tree_flatten tree_unflatten", From("wisp.utils._pytree")),
            **same(
                "_validate_and_get_batch_size _unwrap_batched _create_batched_inputs "
                "_process_batched_inputs _check_out_dims_is_int_or_int_pytree _num_outputs _as_tuple",
                Refusal("call vmap"),
            ),
            "_add_batch_dim": From("wisp.func._vmap", "add_batch_dim"),
            "_remove_batch_dim": From("wisp.func._vmap", "remove_batch_dim"),
            "_maybe_remove_batch_dim": From("wisp.func._vmap", "maybe_remove_batch_dim"),
            "_get_name": Answer("The name of a function.", None, "func", "getattr(func, '__name__', repr(func))"),
        },
    ),
    "_vmap_internals": ("Inner path of `vmap`.", {"_vmap": From("wisp.func", "vmap"), "vmap": From("wisp.func")}),
    "_functorch.apis": ("Inner path of `vmap` and `grad`.", same("vmap grad grad_and_value", From("wisp.func"))),
    "_functorch.eager_transforms": (
        "Inner path of `torch.func`.",
        {
            **same("grad grad_and_value hessian jacfwd jacrev jvp vjp linearize functionalize", From("wisp.func")),
            "_slice_argnums": From("wisp.func._derivatives", "slice_argnums"),
            "_wrap_tensor_for_grad": Refusal("call torch.func.grad"),
        },
    ),
    "_functorch.make_functional": (
        "Modules as functions of their parameters.",
        same(
            "FunctionalModule FunctionalModuleWithBuffers combine_state_for_ensemble functional_init functional_init_with_buffers "
            "make_functional make_functional_with_buffers",
            From("wisp.functorch"),
        ),
    ),
    "_functorch.functional_call": ("Inner path of `torch.func`.", same("functional_call stack_module_state", From("wisp.func"))),
    "_functorch.config": ("Settings that are remembered, and without effect.", Config),
    "_export.config": ("Settings that are remembered, and without effect.", Config),
    "fx.experimental._config": ("Settings that are remembered, and without effect.", Config),
    "distributed.config": ("Settings that are remembered, and without effect.", Config),
    "_C._functions": ("Functions for tests of the graph.", same("AccumulateGrad DelayedError UndefinedGrad", From("wisp.autograd._inner"))),
    "_C._autograd": (
        "Inner names of autograd.",
        {
            **same("SavedTensor _make_saved_tensor _saved_tensors_hooks_is_enabled", From("wisp.autograd._inner")),
            "_saved_tensors_hooks_disable": From("wisp._core", "_set_saved_tensors_hooks_disabled"),
            "_KinetoEvent": Unused("No event of Wisp's profiler is one."),
        },
    ),
    "_C._functorch": (
        "Inner parts of `torch.func`.",
        {
            "is_batchedtensor": Answer("Whether a tensor is one that vmap made.", None, "tensor", "hasattr(tensor, '_level')"),
            **same("is_gradtrackingtensor is_functionaltensor is_legacy_batchedtensor", Answer("False: there is none.", False, "tensor")),
            "TransformType": enum.Enum("TransformType", "Torch Vmap Grad Jvp Functionalize"),
            "_add_batch_dim": From("wisp.func._vmap", "add_batch_dim"),
            "_remove_batch_dim": From("wisp.func._vmap", "remove_batch_dim"),
            **same("get_unwrapped get_value _unwrap_batched maybe_get_bdim", Refusal("call vmap")),
            "maybe_get_level": Answer("-1: no level.", -1, "tensor"),
            "maybe_current_level": Answer("None: no level.", None),
            "peek_interpreter_stack": Answer("None: nothing is under way.", None),
            **same("_is_vmap_fallback_enabled", Answer("True.", True)),
            "_set_vmap_fallback_enabled": Answer("Nothing to set.", None, "enabled"),
        },
    ),
    "_C._distributed_c10d": (
        "Inner parts of process groups.",
        {
            **same("ProcessGroup Work ReduceOp Backend", From("wisp.distributed")),
            **same("Store TCPStore FileStore HashStore PrefixStore", From("wisp.distributed.stores")),
            **same("Reducer Logger ProcessGroupGloo ProcessGroupNCCL", Refusal(_NO_GROUP, True)),
            "_DEFAULT_FIRST_BUCKET_BYTES": 1 << 20,
        },
    ),
    "_C._distributed_rpc": (
        "Calls of functions in other processes: there are none.",
        {"PyRRef": Unused("No value is one."), "_is_current_rpc_agent_set": Answer("False.", False)},
    ),
    "_C._cpu": ("What the processor can do.", {"_get_cpu_capability": From("wisp.cpu", "get_capabilities"), "_init_amx": From("wisp.cpu")}),
    "_C._profiler": (
        "Inner parts of the profiler.",
        {
            "_ExperimentalConfig": Unused("Settings of PyTorch's profiler.", types.SimpleNamespace),
            **same("ProfilerActivity", From("wisp.profiler")),
        },
    ),
    "_C._dynamo": ("Inner parts of a compiler.", {}),
    "_utils_internal": (
        "Switches of PyTorch's makers.",
        {
            "justknobs_check": Answer("What is asked for by default: nothing is switched.", None, "name, default=True", "default"),
            "justknobs_getval_int": Answer("0.", 0, "name"),
        },
    ),
    "_opaque_base": ("A base of objects that a compiler does not look into.", {"OpaqueBase": Unused("A base without a part.")}),
    "_vendor": ("Packages that PyTorch brings.", {}),
    "_vendor.packaging": ("Packages that PyTorch brings.", {}),
    "_vendor.packaging.version": (
        "Versions, of the package `packaging`, where it is installed.",
        same("Version InvalidVersion parse", From("packaging.version")),
    ),
    "_C._dynamo.eval_frame": ("Inner parts of a compiler.", {"_set_lru_cache": Answer("Nothing to set.", None, "on")}),
    "_prims_common": (
        "Rules about shapes.",
        {
            "make_contiguous_strides_for": From("wisp._compat.helpers"),
            "suggest_memory_format": From("wisp._compat.helpers"),
            "canonicalize_dims": From("wisp._compat.helpers"),
            "is_contiguous_or_false": Answer("Whether it is contiguous.", None, "a, **options", "a.is_contiguous()"),
            "get_computation_dtype": From("wisp._compat.helpers"),
            "is_integer_dtype": Answer(
                "Whether numbers of the dtype are whole.", None, "dtype", "not (dtype.is_floating_point or dtype.is_complex)"
            ),
            "is_float_dtype": Answer("Whether it is one of floating-point numbers.", None, "dtype", "dtype.is_floating_point"),
            "is_complex_dtype": Answer("Whether it is one of complex numbers.", None, "dtype", "dtype.is_complex"),
        },
    ),
    "_library.infer_schema": ("Schemas of functions.", {"infer_schema": From("wisp.library")}),
    "_higher_order_ops.out_dtype": ("Products of a wider dtype.", {"out_dtype": Refusal("convert the operands, or call torch._int_mm")}),
    "export.dynamic_shapes": ("Sizes of exported programs.", {"Dim": From("wisp.export")}),
    "fx._lazy_graph_module": (
        "Graphs whose code is written late: here it is written at once.",
        {
            **same("_make_graph_module _LazyGraphModule", From("wisp.fx", "GraphModule")),
            "_use_lazy_graph_module": Answer("A context that changes nothing.", Nothing(), "should_use"),
            "_force_skip_lazy_graph_module": Answer("A context that changes nothing.", Nothing()),
        },
    ),
    "onnx.operators": (
        "Shapes as tensors.",
        {
            "shape_as_tensor": From("wisp", "_shape_as_tensor"),
            "reshape_from_tensor_shape": Answer("The tensor in another shape.", None, "x, shape", "x.reshape(shape.tolist())"),
        },
    ),
    "onnx.symbolic_helper": (
        "Rules of an older exporter.",
        {
            "parse_args": Answer("The decorator itself.", None, "*args, **kwargs", "lambda f: f"),
            **same(
                "_get_tensor_sizes _get_tensor_dim_size _get_tensor_rank _maybe_get_const _maybe_get_scalar _get_const _is_value _is_none "
                "_is_tensor _reshape_helper _repeat_interleave_split_helper _unimplemented _onnx_unsupported scalar_type_to_onnx "
                "_onnx_opset_unsupported_detailed",
                Refusal("torch.onnx.export needs no rules"),
            ),
            "cast_pytorch_to_onnx": {},
        },
    ),
    "optim._multi_tensor": (
        "Optimizers whose steps are taken over lists, as all are here.",
        same("ASGD Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD", From("wisp.optim")),
    ),
    "profiler._utils": ("Parts of the profiler.", {"_init_for_cuda_graphs": Answer("Nothing to do.")}),
    "testing._internal.distributed": ("Parts of PyTorch's harness.", {}),
    "testing._internal.distributed._tensor": ("Parts of PyTorch's harness.", {}),
    "testing._internal.distributed._tensor.common_dtensor": (
        "Parts of PyTorch's harness.",
        same(
            "DTensorTestBase ModelArgs Transformer TransformerBlock with_comms", Refusal("it is a part of PyTorch's harness", is_class=True)
        ),
    ),
    "testing._internal.inductor_utils": (
        "Parts of PyTorch's harness.",
        {
            "clone_preserve_strides_offset": Answer("A copy that lies as the tensor does.", None, "x, device=None", "x.clone()"),
            **same("HAS_GPU HAS_CUDA HAS_TRITON", False),
            "HAS_CPU": True,
        },
    ),
    "utils.data.datapipes.utils": ("Help for pipes.", {}),
    "utils.data.datapipes.utils.common": ("Help for pipes.", {"StreamWrapper": From("wisp._compat.helpers", "StreamWrapper")}),
    "ao.nn.intrinsic": ("Layers that were fused: no module is one.", {"_FusedModule": Unused("No module is one.")}),
    "_guards": (
        "What a compiler would know.",
        {
            **same("active_fake_mode detect_fake_mode", Answer("None: no tensors without data are traced.", None, "*args")),
            **same("TracingContext CompileContext Source Guard CompileId", Unused("Not used.")),
            "tracing": Answer("A context that changes nothing.", Nothing(), "context"),
        },
    ),
    "_logging": (
        "Logs of a compiler: there are none.",
        {
            "set_logs": Answer("Nothing to set.", None, "**kwargs"),
            "warning_once": Answer("A warning, once.", None, "logger, *args, **kwargs", "logger.warning(*args, **kwargs)"),
            "getArtifactLogger": Answer("A logger.", logging.getLogger("wisp"), "module_qname, artifact_name"),
            "trace_structured": Answer("Nothing is written.", None, "*args, **kwargs"),
        },
    ),
    "_logging._internal": ("Logs of a compiler: there are none.", {"trace_log": logging.getLogger("wisp.trace")}),
    "_inductor.codecache": (
        "What a compiler keeps.",
        {
            **same("FxGraphCache PyCodeCache CppCodeCache CacheBase", Refusal(_NO_COMPILER, is_class=True)),
            "extract_tensor_metadata_for_cache_key": Refusal(_NO_COMPILER),
        },
    ),
    "_inductor.utils": (
        "Parts of a compiler.",
        {
            "is_big_gpu": Answer("False.", False, "index=0"),
            "parallel_num_threads": From("wisp", "get_num_threads"),
            "count_tangents": Refusal(_NO_COMPILER),
        },
    ),
    "_subclasses.functional_tensor": (
        "Tensors of a compiler: no tensor is one.",
        {
            **same("FunctionalTensor FunctionalTensorMode", Unused("No tensor is one.")),
            "disable_functional_mode": Answer("A context that changes nothing.", Nothing()),
            "mb_unwrap_functional_tensor": Answer("The tensor.", None, "tensor", "tensor"),
        },
    ),
    "_dynamo.decorators": (
        "Marks for a compiler.",
        {
            "mark_static_address": From("wisp._dynamo"),
            **same("mark_unbacked mark_dynamic", Answer("Nothing to mark.", None, "t, index, *args, **kwargs")),
            **same("disable allow_in_graph", From("wisp._dynamo")),
            "substitute_in_graph": _decorator,
        },
    ),
    "_dynamo.utils": (
        "Parts of a compiler.",
        {
            "is_compile_supported": Answer("False: there is no compiler.", False, "device_type"),
            "counters": {},
            "is_rng_state_getter_or_setter": Answer("False.", False, "value"),
            "warn_once": Answer("A warning.", None, "msg, stacklevel=1", "__import__('warnings').warn(msg, stacklevel=stacklevel + 1)"),
            "same": Answer(
                "Whether values are close.", None, "a, b, tol=1e-4, **options", "__import__('wisp').allclose(a, b, atol=tol, rtol=tol)"
            ),
            "disable_cache_limit": Answer("A context that changes nothing.", Nothing()),
        },
    ),
    "_dynamo.testing": ("Parts of a compiler's tests.", {"CompileCounter": Refusal(_NO_COMPILER, is_class=True)}),
    "_dynamo.backends": ("Back ends of a compiler: there are none.", {}),
    "_dynamo.backends.registry": (
        "Back ends of a compiler: there are none.",
        {"list_backends": From("wisp.compiler"), "register_backend": _decorator, "lookup_backend": Refusal(_NO_COMPILER)},
    ),
    "_dynamo.backends.common": ("Back ends of a compiler: there are none.", {"aot_autograd": Refusal(_NO_COMPILER)}),
    "nested._internal": ("Inner path of nested tensors.", {}),
    "nested._internal.nested_tensor": (
        "Inner path of nested tensors.",
        {
            **same("NestedTensor", From("wisp.nested._tensor")),
            "nested_view_from_values_offsets": From("wisp.nested", "nested_tensor_from_jagged"),
            "nested_from_padded": From("wisp.nested", "_from_padded"),
            "jagged_from_list": From("wisp.nested", "_jagged_from_list"),
            **same("_nt_view_dummy _tensor_symint_registry", Refusal("call torch.nested.nested_tensor_from_jagged")),
        },
    ),
    "nested._internal.ops": (
        "Inner path of nested tensors.",
        {
            "extract_kwargs": Refusal("nested tensors have no registered kernels here"),
            "_outer_to_inner_dim": From("wisp.nested._shapes", "outer_to_inner_dim"),
        },
    ),
    "utils._device": ("The default device as a context.", {"DeviceContext": From("wisp", "device"), "_device_constructors": set}),
    "utils._sympy": ("Symbolic sizes: there are none.", {}),
    "utils._sympy.functions": ("Symbolic sizes: there are none.", same("FloorDiv Mod ModularIndexing Where Identity", Unused("Not used."))),
    "utils._sympy.value_ranges": ("Symbolic sizes: there are none.", same("ValueRanges ValueRangeError bound_sympy", Unused("Not used."))),
    "utils._sympy.numbers": ("Symbolic sizes: there are none.", same("int_oo IntInfinity NegativeIntInfinity", Unused("Not used."))),
    "utils._sympy.symbol": ("Symbolic sizes: there are none.", same("SymT symbol_is_type", Unused("Not used."))),
    "utils._ordered_set": ("Sets that keep their order.", {"OrderedSet": From("wisp._compat.helpers")}),
    "utils.serialization": ("Settings of files.", {}),
    "utils.serialization.config": ("Settings that are remembered, and without effect.", Config),
    "utils.viz": ("Pictures of memory.", {}),
    "utils.viz._cycles": ("Tensors that wait for the garbage collector.", {"warn_tensor_cycles": Refusal("use gc.get_referrers")}),
    "utils._mode_utils": ("Modes of a dispatcher.", {"no_dispatch": From("wisp._tensor.dispatch")}),
    "utils._traceback": ("Tracebacks of compiled code.", {"CapturedTraceback": Unused("Not used.")}),
    "utils._typing_utils": ("Help for type checkers.", {"not_none": Answer("The value.", None, "obj", "obj")}),
    "utils._triton": (
        "Whether Triton is used: it is not.",
        same("has_triton has_triton_package has_triton_tma has_triton_tma_device", Answer("False.", False)),
    ),
    "autograd.profiler_legacy": ("The profiler by an older path.", {"profile": From("wisp.autograd.profiler")}),
    "jit._state": ("What TorchScript knows.", same("_try_get_jit_cached_function _add_script_class", Answer("None.", None, "*args"))),
    "utils.file_baton": ("One process at a time.", {"FileBaton": From("wisp._compat.helpers")}),
    "jit._recursive": (
        "Inner parts of TorchScript.",
        {"concrete_type_store": types.SimpleNamespace(type_store={}), "infer_methods_to_compile": Refusal("scripted code runs as Python")},
    ),
    "jit.frontend": ("Inner parts of TorchScript.", {"get_jit_def": Refusal("scripted code runs as Python")}),
    "nn.utils._named_member_accessor": (
        "Parameters by their names.",
        {"NamedMemberAccessor": From("wisp.nn.utils.stateless", "_NamedMemberAccessor"), "swap_tensor": From("wisp.nn.utils.stateless")},
    ),
    "nn.parallel._functions": (
        "Copies between devices, by an inner path.",
        {
            **same("Broadcast Gather ReduceAddCoalesced Scatter", From("wisp.nn.parallel.comm")),
            "_get_stream": Answer("None: copies wait for no stream of their own.", None, "device"),
        },
    ),
    "utils.data._utils": (
        "PyTorch's paths to the parts of the loader: `_utils.collate`, `_utils.worker`.",
        {
            **{"MP_STATUS_CHECK_INTERVAL": 5.0, "HAS_NUMPY": True, "IS_WINDOWS": False, "python_exit_status": False},
            "ExceptionWrapper": From("wisp._utils"),
        },
    ),
    "utils.data._utils.fetch": (
        "Parts of the loader.",
        {
            "_BaseDatasetFetcher": From("wisp.utils.data._base_iterator", "_MapDatasetFetcher"),
            **same("_MapDatasetFetcher _IterableDatasetFetcher", From("wisp.utils.data._base_iterator")),
        },
    ),
    "utils.data._utils.signal_handling": (
        "How the loader learns that a worker died.",
        same(
            "_set_worker_signal_handlers _set_worker_pids _remove_worker_pids _set_SIGCHLD_handler _error_if_any_worker_fails",
            Answer("Nothing to do: who waits for a worker looks whether it lives.", None, "*args"),
        ),
    ),
    "utils.data._utils.worker": (
        "A worker's side of the loader.",
        {
            **same("WorkerInfo get_worker_info", From("wisp.utils.data._worker_info")),
            "_generate_state": From("wisp.utils.data._worker_info"),
            "_worker_loop": Refusal(_NO_PARTS),
            **same("_IterableDatasetStopIteration _ResumeIteration ManagerWatchdog", From("wisp.utils.data._base_iterator")),
            "_worker_info": None,
        },
    ),
    "utils.data.graph": ("Pipes and those before them.", {"traverse_dps": From("wisp.utils.data.datapipes.datapipe", "traverse")}),
    "utils.data.graph_settings": (
        "Settings of chains of pipes.",
        {
            "apply_shuffle_settings": From("wisp.utils.data.datapipes.datapipe", "with_shuffle"),
            "apply_sharding": From("wisp.utils.data.datapipes.datapipe", "apply_sharding"),
            "apply_shuffle_seed": From("wisp.utils.data.datapipes.datapipe", "apply_shuffle_seed"),
            "apply_random_seed": From("wisp.utils.data.datapipes.datapipe", "apply_shuffle_seed"),
            "get_all_graph_pipes": From("wisp.utils.data.datapipes.datapipe", "get_all_graph_pipes"),
        },
    ),
    "utils.data.datapipes.iter.combinatorics": (
        "Pipes by an inner path.",
        {
            "ShufflerIterDataPipe": From("wisp.utils.data.datapipes.iter", "Shuffler"),
            "SamplerIterDataPipe": From("wisp.utils.data.datapipes.iter", "Sampler"),
        },
    ),
    "utils.data.datapipes.iter.grouping": (
        "Pipes by an inner path.",
        {
            "ShardingFilterIterDataPipe": From("wisp.utils.data.datapipes.iter", "ShardingFilter"),
            "BatcherIterDataPipe": From("wisp.utils.data.datapipes.iter", "Batcher"),
            "SHARDING_PRIORITIES": From("wisp.utils.data.datapipes.datapipe", "SHARDING_PRIORITIES"),
        },
    ),
    "utils.data.datapipes.iter.sharding": (
        "Pipes by an inner path.",
        same("SHARDING_PRIORITIES", From("wisp.utils.data.datapipes.datapipe")),
    ),
    "utils.data.datapipes._typing": ("Types of pipes.", {"DataPipe": typing.Any}),
    "distributed.rendezvous": ("How ranks meet.", {"rendezvous": Refusal(_NO_GROUP), "register_rendezvous_handler": Refusal(_NO_GROUP)}),
    "distributed.utils": (
        "Help for process groups.",
        {
            "_sync_module_states": Answer("Nothing: DistributedDataParallel does it.", None, "*args, **kwargs"),
            "_verify_param_shape_across_processes": Answer("Nothing: collectives compare shapes.", None, "*args, **kwargs"),
            "_to_kwargs": Refusal("use torch.nn.parallel.scatter_gather"),
        },
    ),
    "distributed.fsdp.api": (
        "Settings of sharded training by an inner path.",
        same(
            "BackwardPrefetch CPUOffload MixedPrecision ShardingStrategy StateDictType FullStateDictConfig ShardedStateDictConfig "
            "LocalStateDictConfig LocalOptimStateDictConfig "
            "FullOptimStateDictConfig ShardedOptimStateDictConfig StateDictConfig OptimStateDictConfig StateDictSettings",
            From("wisp.distributed.fsdp"),
        ),
    ),
    "distributed.fsdp._runtime_utils": (
        "Inner parts of sharded training.",
        same("_lazy_init _post_forward _root_pre_forward _post_backward_hook _reshard", Refusal("units gather themselves")),
    ),
    "distributed.fsdp._common_utils": (
        "Inner parts of sharded training.",
        {
            "_FSDPState": Unused("Not used."),
            "_get_module_fsdp_state": Answer("None.", None, "module"),
            "FSDP_WRAPPED_MODULE": "_fsdp_wrapped_module",
            "_no_dispatch_record_stream": Answer(
                "Waits on its stream, as the tensor does.", None, "tensor, stream", "tensor.record_stream(stream)"
            ),
            "TrainingState": enum.Enum("TrainingState", "IDLE FORWARD_BACKWARD SUMMON_FULL_PARAMS"),
            "HandleTrainingState": enum.Enum("HandleTrainingState", "IDLE FORWARD BACKWARD_PRE BACKWARD_POST SUMMON_FULL_PARAMS"),
        },
    ),
    "distributed.checkpoint.metadata": (
        "What a checkpoint of PyTorch's holds; Wisp's says it in a file of JSON.",
        {
            **same(
                "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta TensorProperties TensorStorageMetadata",
                Unused("No checkpoint of Wisp's has one."),
            ),
            **same("STATE_DICT_TYPE STORAGE_TYPES", dict),
        },
    ),
    "distributed.checkpoint.planner": (
        "Who writes what: decided by Wisp's own plan, which programs do not change.",
        {
            **same("LoadItemType LoadPlan ReadItem SavePlan TensorWriteData WriteItem BytesIOWriteData", Unused("Not made.")),
            **same("LoadPlanner SavePlanner", Unused("A base without a part: Wisp plans for itself.")),
            "WriteItemType": enum.Enum("WriteItemType", "TENSOR SHARD BYTE_IO"),
        },
    ),
    "distributed.checkpoint.storage": (
        "Where checkpoints lie: files, which Wisp reads and writes itself.",
        {
            "StorageReader": From("wisp.distributed.checkpoint", "FileSystemReader"),
            "StorageWriter": From("wisp.distributed.checkpoint", "FileSystemWriter"),
            "WriteResult": Unused("Not made."),
        },
    ),
    "distributed.checkpoint.utils": (
        "Help for checkpoints.",
        {"CheckpointException": From("wisp.distributed.checkpoint"), "find_state_dict_object": Refusal("look into the state")},
    ),
    "distributed._composable_state": (
        "What was done to a module by composable parts: nothing is noted.",
        {"_State": Unused("Not made."), "_get_module_state": Answer("None.", None, "module")},
    ),
    "distributed._composable.contract": (
        "Marks of what was done to a module.",
        {"contract": Answer("The decorator itself: nothing is marked.", None, "state_cls=None", "lambda f: f")},
    ),
    "distributed.checkpoint.optimizer": (
        "Optimizers in sharded checkpoints.",
        {"load_sharded_optimizer_state_dict": Refusal("use distributed.checkpoint.state_dict.get_optimizer_state_dict")},
    ),
    "distributed.checkpoint.state_dict_loader": (
        "Loading by an inner path.",
        {**same("load load_state_dict", From("wisp.distributed.checkpoint")), "_load_state_dict": Refusal("call checkpoint.load")},
    ),
    "distributed.checkpoint.state_dict_saver": (
        "Saving by an inner path.",
        {
            **same("save save_state_dict async_save", From("wisp.distributed.checkpoint")),
            "AsyncCheckpointerType": enum.Enum("AsyncCheckpointerType", {"THREAD": "thread", "PROCESS": "process"}),
            "AsyncSaveResponse": Unused("Not made: async_save returns a future."),
        },
    ),
    "distributed.algorithms.model_averaging": ("Averages of models over ranks.", {}),
    "distributed.algorithms.model_averaging.averagers": (
        "Averages of models over ranks.",
        same("ModelAverager PeriodicModelAverager", Refusal("average parameters with all_reduce every few steps", is_class=True)),
    ),
    "distributed._tensor.placement_types": (
        "Placements by an older path.",
        {
            **same("Placement Partial Replicate Shard", From("wisp.distributed.tensor")),
            "_Partial": From("wisp.distributed.tensor", "Partial"),
            **same("DTensorSpec TensorMeta", From("wisp.distributed.tensor._dtensor_spec")),
        },
    ),
    "distributed.autograd": (
        "Gradients by remote calls: there are none.",
        {
            "is_available": Answer("False.", False),
            **same("backward get_gradients", Refusal(_NO_GROUP)),
            **same("context DistAutogradContext", Refusal(_NO_GROUP, is_class=True)),
        },
    ),
    "numa": ("Which processors a process runs on.", {}),
    "numa.binding": (
        "Which processors a process runs on: it is not chosen here.",
        {
            "AffinityMode": enum.Enum("AffinityMode", {name: name.lower() for name in "NODE SOCKET EXCLUSIVE CORE_COMPLEX".split()}),
            "NumaOptions": Refusal("start the process with numactl", is_class=True),
            "_maybe_apply_numa_binding_to_current_process": Answer("Nothing to do.", None, "**kwargs"),
        },
    ),
    "distributed.pipelining": (
        "`torch.distributed.pipelining`: pipelines over processes, which Wisp does not have.",
        {
            **same("pipeline PipelineStage ScheduleGPipe Schedule1F1B pipe_split Pipe", Refusal(_NO_PIPELINE, is_class=True)),
            "SplitPoint": enum.Enum("SplitPoint", "BEGINNING END"),
        },
    ),
    "distributed.tensor.experimental": (
        "Parts of sharded tensors.",
        {
            "implicit_replication": Answer("A context that changes nothing.", Nothing()),
            **same("context_parallel local_map register_sharding", Refusal("not there")),
        },
    ),
    "distributed._tensor.experimental": (
        "Parts of sharded tensors by an older path.",
        {"implicit_replication": Answer("A context that changes nothing.", Nothing())},
    ),
    "distributed._shard": ("Older sharded tensors.", {}),
    "distributed._shard.sharded_tensor": (
        "Older sharded tensors: use DTensor.",
        same("ShardedTensor ShardedTensorBase Shard ShardMetadata ShardedTensorMetadata TensorProperties", Unused("No tensor has one.")),
    ),
    "distributed._shard.sharded_tensor.api": (
        "The inner path.",
        same("ShardedTensor Shard", From("wisp.distributed._shard.sharded_tensor")),
    ),
    "distributed._shard.metadata": ("The inner path.", {"ShardMetadata": Unused("No tensor has one.")}),
    "distributed._shard.sharding_spec": (
        "Older sharded tensors: use DTensor.",
        same("ShardingSpec EnumerableShardingSpec ChunkShardingSpec ShardMetadata", Unused("No tensor has one.")),
    ),
    "fx._compatibility": (
        "Promises of PyTorch's about names that stay.",
        {"compatibility": Answer("What is decorated stays as it is.", None, "is_backward_compatible=False", "lambda f: f")},
    ),
    "fx.config": ("Settings of tracing.", {"disable_progress": True, "verbose_progress": False}),
    "cuda.sparse": (
        "Types of sparse tensors on a GPU; none is one by its type.",
        same("FloatTensor DoubleTensor HalfTensor BFloat16Tensor IntTensor LongTensor ByteTensor", Unused("No tensor is one.")),
    ),
    "cuda._memory_viz": ("Pictures of memory.", same("profile_plot trace_plot segment_plot", Refusal("use wisp.viz"))),
    "cuda._utils": ("Numbers of devices.", {"_get_device_index": From("wisp._utils")}),
    "backends.kleidiai": ("Arm's kernels: they are not used.", {"is_available": Answer("False.", False)}),
    "backends.mha": (
        "Settings of attention.",
        {"get_fastpath_enabled": Answer("True.", True), "set_fastpath_enabled": Answer("Nothing to set.", None, "value")},
    ),
    "backends.miopen": ("AMD's library: it is not used.", {"is_available": Answer("False.", False), "immediate": False}),
    "_custom_ops": ("Operators of programs, by an older path.", same("custom_op impl impl_abstract", Refusal("use torch.library"))),
    "_weights_only_unpickler": (
        "Names that files may refer to, by an inner path.",
        {
            "_get_user_allowed_globals": From("wisp.serialization._names", "added_names"),
            "_get_allowed_globals": From("wisp.serialization._names", "allowed_names"),
            **same("_add_safe_globals", From("wisp.serialization", "add_safe_globals")),
        },
    ),
    "testing._internal": ("PyTorch's own test harness is not a part of Wisp; what libraries' tests take of it is here.", {}),
    "testing._internal.common_utils": (
        "What libraries' tests take of PyTorch's harness.",
        {
            "TestCase": From("wisp._compat.testing"),
            "run_tests": From("unittest", "main"),
            **same("TEST_WITH_ROCM TEST_CUDA TEST_XPU TEST_HPU IS_WINDOWS IS_MACOS IS_FBCODE TEST_WITH_SLOW", False),
            **same("TEST_WITH_ASAN TEST_WITH_TSAN TEST_WITH_UBSAN TEST_WITH_TORCHDYNAMO IS_SANDCASTLE IS_JETSON IS_ARM64 IS_CI", False),
            **same("IS_LINUX IS_X86 TEST_NUMPY", True),
            **same("skipIfRocm skipIfTorchDynamo slowTest", Answer("The test itself.", None, "test=None", "test or (lambda f: f)")),
            "NO_MULTIPROCESSING_SPAWN": False,
            "load_tests": None,
            "find_free_port": From("wisp.distributed.run", "_free_port"),
            "freeze_rng_state": From("wisp.random", "fork_rng"),
            **same("instantiate_parametrized_tests parametrize", From("wisp._compat.testing")),
            "make_tensor": From("wisp.testing"),
        },
    ),
    "testing._internal.composite_compliance": (
        "Which operators write or view, by their names.",
        {
            "is_view_fn": Answer(
                "Whether the operator gives a view.",
                frozenset(
                    """as_strided detach diagonal expand expand_as movedim narrow permute select squeeze transpose t real imag
                    view_as_real view_as_complex unflatten unfold unsqueeze view view_as unbind split split_with_sizes vsplit hsplit
                    tensor_split chunk swapaxes slice _reshape_alias _unsafe_view _conj alias""".split()
                ),
                "func",
                "func.overloadpacket.__name__ in value",
            ),
            "is_inplace_view_fn": Answer(
                "Whether the operator makes its argument another view.",
                frozenset("as_strided_ detach_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_".split()),
                "func",
                "func.overloadpacket.__name__ in value",
            ),
            "is_inplace": Answer(
                "Whether the operator writes to its argument: __iadd__ and add_ do, __add__ does not.",
                re.compile("__i.+__|(?!__.+__).*_"),
                "func",
                "bool(value.fullmatch(func.overloadpacket.__name__))",
            ),
        },
    ),
    "testing._internal.common_cuda": ("What libraries' tests ask about GPUs.", same("TEST_CUDA TEST_MULTIGPU TEST_CUDNN", False)),
}
