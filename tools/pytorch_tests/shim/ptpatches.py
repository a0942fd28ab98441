"""What the harness needs of PyTorch's build-only internals, set on Wisp's modules only where they lack it."""

import ast
import contextlib
import dis
import enum
import functools
import importlib
import logging
import os
import re
import sys
import types

import ptshim

HARNESS = ptshim.SRC
NAMED = {dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") if name in dis.opmap}
given = []
logging.getLogger("wisp").parent = logging.getLogger("torch")  # whose records assertLogs looks at


class _Nothing(contextlib.nullcontext, contextlib.ContextDecorator):
    """A context, or a decorator, that changes nothing."""

    def __init__(self, *args, **kwargs):
        super().__init__()


def lack(module, **values):
    for name, value in values.items():
        try:
            found = name in vars(module) or (not isinstance(module, types.ModuleType) and hasattr(module, name))
        except TypeError:
            found = hasattr(module, name)
        if not found:
            setattr(module, name, value)
            given.append(f"{getattr(module, '__name__', module)}.{name}")


def _kind(schemas, value):
    inner = [_kind(schemas, item) for item in value] if isinstance(value, (list, tuple)) else None
    return type(value) if inner is None else schemas.create_type_hint(inner if isinstance(value, list) else tuple(inner))


class Missing(ptshim.Stub):
    """A name of PyTorch's API that Wisp lacks, met while the harness builds its tables."""

    def __call__(self, *args, **kwargs):
        if not ptshim.in_test():
            if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], ptshim.Stub):
                return args[0]
            return self
        raise AttributeError(f"MISSING API: {self._stub}")

    def __getattr__(self, name):
        if name == "__all__":
            return []
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)
        if name == "__name__":
            return self._stub.rpartition(".")[2]
        return missing(f"{self._stub}.{name}")

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


_missing = {}


def missing(name):
    if name not in _missing:
        cls = type(ptshim.Stub)(name.rpartition(".")[2], (Missing,), {"_stub": name})
        _missing[name] = cls()
    return _missing[name]


def after_test():
    """What tests undo through private names: nn.modules.module._global_forward_hooks = OrderedDict() and the like."""
    hooks = sys.modules.get("wisp.nn.modules.hooks")
    if hooks is not None:
        for name, value in vars(hooks).items():
            if name.startswith("_global_") and name.endswith(("hooks", "_kwargs", "_called")) and hasattr(value, "clear"):
                value.clear()
        hooks._global_is_full_backward_hook = None
        call = getattr(hooks, "_switch", None)
        if callable(call):
            call()


def apply():
    import wisp
    from wisp._compat import alias, stubs

    for name in [name for name in stubs.STUBS if name.startswith("testing._internal")]:
        del stubs.STUBS[name]  # PyTorch's own files are here

    # names that Wisp lacks, asked for by the harness's own files while they are imported
    original = alias._Asked.__getattr__

    def __getattr__(self, name):
        try:
            return original(self, name)
        except (AttributeError, ImportError):
            frame = sys._getframe(1)
            named = frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in NAMED  # torch.x, not getattr(torch, "x", None)
            if named and not ptshim.in_test() and frame.f_code.co_filename.startswith(HARNESS) and not name.startswith("__"):
                return missing(f"{self.__name__}.{name}".replace("wisp", "torch", 1))
            raise

    alias._Asked.__getattr__ = __getattr__

    def tolerant(cls, label):
        """Names asked of `cls` by the harness or a test file at import become Missing."""
        before = cls.__getattr__

        def __getattr__(self, name):
            try:
                return before(self, name)
            except Exception:
                frame = sys._getframe(1)
                if not ptshim.in_test() and frame.f_code.co_filename.startswith(HARNESS) and not name.startswith("__"):
                    return missing(f"{label}.{name}")
                raise

        cls.__getattr__ = __getattr__

    import wisp._C
    import wisp._ops

    tolerant(wisp._C._Names, "torch._C._nn")
    for cls in vars(wisp._ops).values():
        if isinstance(cls, type) and "__getattr__" in vars(cls):
            tolerant(cls, "torch.ops")

    def no(*args, **kwargs):
        return False

    def none(*args, **kwargs):
        return None

    import wisp._C as C

    lack(C, __path__=[])

    class _TorchFunctionState(enum.Enum):
        ENABLED, SUBCLASSES_DISABLED, ALL_DISABLED = range(3)

    class ScriptMethod:
        def __call__(self, *args, **kwargs):
            raise ptshim.HarnessStub("TorchScript")

    class Script(ScriptMethod):
        pass

    if "__call__" not in vars(C.ScriptFunction):
        C.ScriptFunction.__call__ = ScriptMethod.__call__
    lack(
        C,
        ScriptDict=Script,
        ScriptList=Script,
        ScriptMethod=ScriptMethod,
        ScriptObject=Script,
        TensorType=Script,
        _TorchFunctionState=_TorchFunctionState,
        _get_torch_function_state=lambda: _TorchFunctionState.ENABLED,
        _set_torch_function_state=none,
        _pop_torch_function_stack=none,
        _get_graph_executor_optimize=no,
        _jit_set_num_profiled_runs=lambda n: 1,
        _get_cpu_capability=lambda: "AVX2",
        has_lapack=True,
        has_spectral=True,
        has_mkl=False,
        has_openmp=True,
        has_cuda=False,
        _cuda_clearCublasWorkspaces=none,
        _dispatch_isTensorSubclassLike=no,
        _debug_only_are_vmap_fallback_warnings_enabled=no,
        _debug_only_display_vmap_fallback_warnings=none,
        _functorch=importlib.import_module("wisp._C._functorch"),
        _DisableFuncTorch=contextlib.nullcontext,
        _len_torch_dispatch_stack=lambda: 0,
    )
    for name in ("fft", "linalg", "special"):
        lack(importlib.import_module(f"wisp.{name}"), __all__=[])
    import wisp.utils.data.datapipes.iter
    import wisp.utils.data.datapipes.map

    for module in (wisp.utils.data.datapipes.iter, wisp.utils.data.datapipes.map):
        lack(module, __path__=[])
    # used by setUp and tearDown of test_autograd
    import wisp.autograd

    def _force_original_view_tracking(mode):
        return contextlib.nullcontext()

    lack(wisp.autograd, _force_original_view_tracking=_force_original_view_tracking)
    # what TorchScript says of a value, which test_fx_experimental chooses forms of operators by
    import wisp.fx.operator_schemas as schemas

    lack(C, _jit_try_infer_type=lambda value: types.SimpleNamespace(success=lambda: True, type=lambda: _kind(schemas, value)))
    lack(schemas, _torchscript_type_to_python_type=lambda kind: kind)
    # setUp of TestFX loads a C++ test library that only PyTorch's build has
    load = type(wisp._ops.ops).load_library

    def load_library(self, path):
        if "torchbind_test" not in str(path):
            return load(self, path)

    type(wisp._ops.ops).load_library = load_library
    # freeze_rng_state of the harness
    lack(wisp.utils, _mode_utils=types.SimpleNamespace(no_dispatch=contextlib.nullcontext))
    import wisp.cpu

    lack(
        wisp.cpu,
        get_capabilities=dict,
        _is_avx2_supported=lambda: True,
        _is_amx_fp16_supported=no,
        _is_amx_tile_supported=no,
        _is_avx512_supported=no,
    )
    import wisp.backends as B

    lack(B, disable_global_flags=none)
    import wisp.onnx

    lack(wisp.onnx, producer_name="pytorch", producer_version="2", register_custom_op_symbolic=none, unregister_custom_op_symbolic=none)
    import wisp._utils

    lack(wisp._utils, _is_privateuse1_backend_available=no)
    import wisp.version

    lack(wisp.version, hip=None, xpu=None, cuda=None, rocm=None)
    import wisp.compiler

    lack(wisp.compiler, set_stance=none)
    import wisp.storage

    lack(wisp.storage, _get_always_warn_typed_storage_removal=no, _set_always_warn_typed_storage_removal=none)
    import wisp._dynamo as D

    config = types.SimpleNamespace(
        suppress_errors=False,
        compiled_autograd=False,
        accumulated_recompile_limit=64,
        log_compilation_metrics=False,
        issue_3_13_0_warning=False,
        recompile_limit=8,
        inline_inbuilt_nn_modules=True,
        capture_scalar_outputs=False,
        patch=_Nothing,
    )
    lack(D, config=config, reset=none, compiled_autograd=types.SimpleNamespace(reset=none))
    for name in ("UserError", "Unsupported", "TorchRuntimeError", "InternalTorchDynamoError", "BackendCompilerFailed"):
        if not hasattr(D.exc, name):
            setattr(D.exc, name, type(name, (ptshim.HarnessStub,), {}))
    import wisp._inductor as I

    lack(I, config=types.SimpleNamespace(fallback_random=False, cpp_wrapper=False, patch=_Nothing))


def _core(module):
    original = module._getattr_qual

    def _getattr_qual(obj, name, default=module._NOTHING):
        try:
            return original(obj, name, default)
        except AttributeError:
            return missing(f"torch.{name}")

    module._getattr_qual = _getattr_qual


def _device_type(module):
    # 2.13 instantiates test_binary_ufuncs's device tests for every device but the CPU: they run here on the CPU too
    original = module.instantiate_device_type_tests

    def instantiate_device_type_tests(generic_test_class, scope, except_for=None, only_for=None, **options):
        if except_for == "cpu" and generic_test_class.__name__ == "TestBinaryUfuncsDevice":
            except_for = None
        return original(generic_test_class, scope, except_for=except_for, only_for=only_for, **options)

    module.instantiate_device_type_tests = instantiate_device_type_tests

    parametrize = module.ops._parametrize_test

    def _parametrize_test(self, test, generic_cls, device_cls):
        self.op_list = list(self.op_list)
        if not self.op_list and self.allowed_dtypes is None:
            return
        try:
            yield from parametrize(self, test, generic_cls, device_cls)
        except ValueError as error:
            if "empty op_list" not in str(error):
                raise

    module.ops._parametrize_test = _parametrize_test


ptshim.AFTER["torch.testing._internal.opinfo.core"] = _core


def _common_utils(module):
    import torch.testing._utils  # noqa: F401


def _torchbind(module):
    import unittest

    def load_torchbind_test_lib():
        raise unittest.SkipTest("a C++ library that only PyTorch's build has")

    module.load_torchbind_test_lib = load_torchbind_test_lib


def _annotated(module):
    """The arguments of PyTorch's operators, of those that Wisp has; the list is in the wheel."""
    import torch

    module.annotated_args = {}
    with open(os.path.join(ptshim.WHEEL, "torch", "testing", "_internal", "generated", "annotated_fn_args.py")) as lines:
        for line in lines:
            found = re.match(r"    torch\.([\w.]+): (\[.*\]),$", line)
            if found is None:
                continue
            try:
                function = functools.reduce(getattr, found[1].split("."), torch)
            except Exception:
                continue
            if found[1].endswith(getattr(function, "__name__", "?")) and not isinstance(function, ptshim.Stub):
                module.annotated_args.setdefault(function, ast.literal_eval(found[2]))


ptshim.OVERLAY["torch.testing._internal.generated"] = lambda module: None
ptshim.OVERLAY["torch.testing._internal.generated.annotated_fn_args"] = _annotated
ptshim.AFTER["torch.testing._internal.common_utils"] = _common_utils
ptshim.OVERLAY["torch.testing._internal.torchbind_impls"] = _torchbind
ptshim.AFTER["torch.testing._internal.common_device_type"] = _device_type


def _internal(module):
    module.IS_FBSOURCE = False
    module.get_file_path = lambda *parts: os.path.join(ptshim.SRC, *parts)
    # files beside torch's own are found in the sources, as the package is elsewhere
    module.get_file_path_2 = lambda home, *parts: os.path.join(ptshim.SRC if parts[:1] == ("torch",) else home, *parts)
    module.get_writable_path = lambda path: path
    module.prepare_multiprocessing_environment = lambda path: None


def _abbreviations(module):
    import torch

    names = {
        "bfloat16": "bf16",
        "float64": "f64",
        "float32": "f32",
        "float16": "f16",
        "complex64": "c64",
        "complex128": "c128",
        "int8": "i8",
        "int16": "i16",
        "int32": "i32",
        "int64": "i64",
        "bool": "b8",
        "uint8": "u8",
        "uint16": "u16",
        "uint32": "u32",
        "uint64": "u64",
    }
    module.dtype_abbrs = {getattr(torch, name): short for name, short in names.items()}


def _mode_utils(module):
    module.no_dispatch = contextlib.nullcontext


def _prims_common(module):
    import torch

    pairs = {
        torch.float64: torch.complex128,
        torch.float32: torch.complex64,
        torch.float16: torch.complex32,
        torch.bfloat16: torch.complex64,
    }
    module.corresponding_complex_dtype = lambda dtype: pairs[dtype]
    module.corresponding_real_dtype = lambda dtype: {v: k for k, v in list(pairs.items())[:3]}[dtype]
    module.is_complex_dtype = lambda dtype: dtype.is_complex
    module.is_float_dtype = lambda dtype: dtype.is_floating_point
    module.is_boolean_dtype = lambda dtype: dtype is torch.bool
    module.is_integer_dtype = lambda dtype: not (dtype.is_complex or dtype.is_floating_point)

    def dtype_to_type(dtype):
        return bool if dtype is torch.bool else complex if dtype.is_complex else float if dtype.is_floating_point else int

    module.dtype_to_type = dtype_to_type


def _hop_db(module):
    module.hop_db, module.hop_that_doesnt_have_opinfo_test_allowlist = [], []


def _empty_all(module):
    module.__all__ = []


def _scribe(module):
    module.open_source_signpost = lambda **kwargs: None


def _inductor_utils(module):
    module.GPU_TYPES = ["cuda", "mps", "xpu", "mtia"]


def _no_jit(module):
    from torch.testing._internal.common_utils import TestCase

    module.RUN_CUDA = False
    module.JitTestCase = module.TestCase = module.LoggingTestCase = TestCase

    def make_logging_test(**settings):
        """Tests of what PyTorch's build logs about itself."""

        def unavailable(self):
            raise ptshim.HarnessStub("torch._logging")

        return lambda test: unavailable

    module.make_logging_test = make_logging_test


def _triton(module):
    module.has_triton = lambda: False
    module.has_triton_package = lambda: False


def _inductor_harness(module):
    module.HAS_GPU = module.HAS_CUDA = module.HAS_CUDA_AND_TRITON = module.HAS_TRITON = module.HAS_CPU = False
    module.HAS_GPU_AND_TRITON = False
    module.GPU_TYPE = "cuda"


def _maskedtensor(module):
    """The lists of operators and the comparisons of PyTorch's masked tensors, taken from the wheel, for Wisp's class."""
    import torch

    file = os.path.join(ptshim.WHEEL, *module.__name__.split(".")) + ".py"
    with open(file) as source:
        tree = ast.parse(source.read())
    wanted = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "").endswith("_NAMES")
        or isinstance(node, ast.FunctionDef)
        and node.name in ("_masks_match", "_tensors_match")
    ]
    found = {"torch": torch, "is_masked_tensor": torch.masked.is_masked_tensor}
    exec(compile(ast.Module(wanted, []), file, "exec"), found)
    for name in [name for name in found if name.endswith("_NAMES")]:
        found["NATIVE_" + name.replace("_NAMES", "_FNS")] = [getattr(torch.ops.aten, n) for n in found[name] if hasattr(torch.ops.aten, n)]
    vars(module).update({name: value for name, value in found.items() if not name.startswith("__")})


ptshim.OVERLAY.update(dict.fromkeys((f"torch.masked.maskedtensor.{n}" for n in ("core", "unary", "binary", "reductions")), _maskedtensor))
ptshim.OVERLAY.update(
    {
        "torch._utils_internal": _internal,
        "torch.utils._dtype_abbrs": _abbreviations,
        "torch.testing._internal.hop_db": _hop_db,
        "torch._refs": _empty_all,
        "torch._prims": _empty_all,
        "torch._refs.nn.functional": _empty_all,
        "torch._refs.special": _empty_all,
        "torch._refs.linalg": _empty_all,
        "torch._refs.fft": _empty_all,
        "torch._refs.nn": _empty_all,
        "torch.utils._mode_utils": _mode_utils,
        "torch._prims_common": _prims_common,
        "torch._logging.scribe": _scribe,
        "torch._inductor.utils": _inductor_utils,
        "torch.testing._internal.common_jit": _no_jit,
        "torch.testing._internal.jit_utils": _no_jit,
        "torch.utils._triton": _triton,
        "torch.testing._internal.inductor_utils": _inductor_harness,
        "torch.testing._internal.triton_utils": _inductor_harness,
        "torch.testing._internal.logging_utils": _no_jit,
        "torch._dynamo.test_case": _no_jit,
        "torch._inductor.test_case": _no_jit,
    }
)
