"""Modules of PyTorch that Wisp has nothing to do for: tables of the names that programs touch, with what they answer and why."""

import collections.abc
import contextlib
import math
from importlib import import_module

from wisp._compat.config import Config


class Answer:
    """A function that returns one value, whatever it is called with."""

    def __init__(self, text, value=None, parameters=""):
        self.text, self.value, self.parameters = text, value, parameters

    def make(self, name, module):
        function = eval(f"lambda {self.parameters}: value", {"value": self.value})
        function.__name__, function.__qualname__, function.__module__, function.__doc__ = name, name, module, self.text
        return function


class Refusal:
    """A function, or a class, that cannot be used: the text says why and what to do instead."""

    def __init__(self, text, is_class=False):
        self.text, self.is_class = text, is_class

    def make(self, name, module):
        def refuse(*args, **kwargs):
            raise NotImplementedError(f"{name}: {self.text}")

        refuse.__name__, refuse.__module__, refuse.__doc__ = name, module, "Not available: raises NotImplementedError."
        return type(name, (), {"__init__": refuse, "__module__": module, "__doc__": refuse.__doc__}) if self.is_class else refuse


class Unused:
    """A class that programs compare with or catch, and that Wisp makes no use of."""

    def __init__(self, text, base=object):
        self.text, self.base = text, base

    def make(self, name, module):
        return type(name, (self.base,), {"__doc__": self.text, "__module__": module})


class From:
    """What another module has under the same name."""

    def __init__(self, home):
        self.home = home

    def make(self, name, module):
        return getattr(import_module(self.home), name)


_NO_DEVICE = {
    "is_available": Answer("False: Wisp runs on the CPU and on CUDA.", False),
    "is_initialized": Answer("False: there is no such device.", False),
    "device_count": Answer("0: there is no such device.", 0),
    "manual_seed": Answer("Nothing to seed.", None, "seed"),
    "manual_seed_all": Answer("Nothing to seed.", None, "seed"),
    "empty_cache": Answer("Nothing to free."),
    "synchronize": Answer("Nothing to wait for.", None, "device=None"),
}
_NO_ARCHIVES = "Wisp writes and reads no archives of code: save the state_dict with torch.save and ship the source beside it"
_NO_GRAPHS = "TorchScript has it; none is made here, since scripted code runs as Python."

# module -> its docstring, and its names, its class, or the module that it is another name for
STUBS = {
    "mps": ("`torch.mps` for programs that ask: Wisp has no MPS backend, so nothing is available.", _NO_DEVICE),
    "xpu": ("`torch.xpu` for programs that ask: Wisp has no XPU backend, so nothing is available.", _NO_DEVICE),
    "mtia": ("`torch.mtia` for programs that ask: there is no such device.", _NO_DEVICE),
    "package": (
        "`torch.package`: archives of code are not written or read.",
        {
            "PackageExporter": Refusal(_NO_ARCHIVES, is_class=True),
            "PackageImporter": Refusal(_NO_ARCHIVES, is_class=True),
            "PackageHeader": Unused("Not available."),
        },
    ),
    "quantization": ("`torch.quantization`, the older name of `torch.ao.quantization`.", "wisp.ao.quantization"),
    "_tensor_str": ("How tensors are printed, by the name of PyTorch's module.", "wisp._tensor.printing"),
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
    "_subclasses": ("Parts of `torch._subclasses` that libraries ask.", {}),
    "_subclasses.fake_tensor": (
        "Tensors without data do not exist here.",
        {"FakeTensor": Unused("No tensor is one."), "is_fake": Answer("False.", False, "x")},
    ),
    "_inductor": ("Settings of PyTorch's compiler back end that programs change; Wisp runs eagerly.", {}),
    "_inductor.config": ("Settings that are remembered, and without effect.", Config),
    "_dynamo": (
        "Names of PyTorch's compiler front end that programs touch; Wisp runs eagerly.",
        {
            **dict.fromkeys(
                ("allow_in_graph", "assume_constant_result", "disable", "is_compiling", "list_backends", "reset"), From("wisp.compiler")
            ),
            "optimize": Answer("A decorator that returns the function as it is.", lambda f: f, "backend='inductor', **options"),
            "graph_break": Answer("Nothing to break.", None, "msg=''"),
            "mark_dynamic": Answer("Nothing to mark.", None, "t, index, **options"),
            "mark_static": Answer("Nothing to mark.", None, "t, index=None"),
            "mark_static_address": Answer("Nothing to mark.", None, "t, guard=True"),
            "OptimizedModule": Unused("The class of compiled modules: none is one, `compile` returns the module itself."),
            "explain": Refusal("Wisp runs eagerly and has no compiler to ask"),
        },
    ),
    "_dynamo.config": ("Settings that are remembered, and without effect.", Config),
    "_dynamo.eval_frame": ("The class of compiled modules by its inner module.", {"OptimizedModule": From("wisp._dynamo")}),
    "_dynamo.exc": (
        "Errors of PyTorch's compiler; none is raised.",
        dict.fromkeys(("TorchDynamoException", "BackendCompilerFailed", "Unsupported"), Unused("Not raised.", RuntimeError)),
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
            **dict.fromkeys(
                (
                    "_jit_set_profiling_mode",
                    "_jit_set_profiling_executor",
                    "_jit_set_texpr_fuser_enabled",
                    "_jit_set_nvfuser_enabled",
                    "_jit_override_can_fuse_on_gpu",
                    "_jit_override_can_fuse_on_cpu",
                ),
                Answer("Nothing to set.", False, "mode"),
            ),
            "_jit_pass_inline": Answer("Nothing to do.", None, "graph"),
            "_get_privateuse1_backend_name": Answer("The name of a device that nobody defined.", "privateuseone"),
            "_cuda_isInBadFork": Answer("False: GPUs are found on first use.", False),
            "PyTorchFileReader": Refusal("use torch.load, which reads PyTorch's archives", is_class=True),
            **dict.fromkeys(("Graph", "Value", "ListType", "ScriptModule", "ScriptFunction", "FunctionSchema"), Unused(_NO_GRAPHS)),
            **dict.fromkeys(("_has_xpu", "_has_mps", "_has_mkldnn", "_has_mkl", "_has_xnnpack"), False),
            **dict.fromkeys(("_has_lapack", "_has_openmp", "_GLIBCXX_USE_CXX11_ABI"), True),
        },
    ),
}


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
        return
    namespace.update({name: what.make(name, name_of_module) if hasattr(what, "make") else what for name, what in names.items()})
    namespace.setdefault("__all__", [name for name in names if not name.startswith("_")])
    below = {name[len(stub) + 1 :] for name in STUBS if name.startswith(stub + ".")}

    def __getattr__(name):
        if name in below:
            return import_module(f"{name_of_module}.{name}")
        raise AttributeError(f"module {name_of_module!r} has no attribute {name!r}")

    namespace.setdefault("__getattr__", __getattr__)
