"""PyTorch's programs, unmodified: the names that Wisp has because they ask for them, and `torch` as a name for Wisp.

Modules such as `wisp.mps`, `wisp._dynamo` or `wisp.storage` are parts of the package as far as a program sees, but none of them
lies at its top. Where there is something to do, the module is a file in `modules/`; where there is only something to answer, or to
find elsewhere, it is a table in `stubs.py`, which has modules further down the package too (`wisp.cuda.nvtx`). All are imported by the
name that PyTorch gives them (`wisp.storage`, never `wisp._compat.modules.storage`): `Finder` tells the import system, `wisp.__getattr__`
reads `NAMES`. `alias.py` is what makes `import torch` mean Wisp.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder

MODULES = set(
    """
    _C _VF __config__ __future__ _higher_order_ops _jit_internal _ops _utils accelerator as_torch check cpu functional functorch futures
    monitor quasirandom return_types run storage torch_version types version""".split()
)
TABLES = set(
    """
    _compile _custom_ops _decomp _dynamo _export _functorch _guards _inductor _library _logging _opaque_base _prims_common _six _subclasses
    _tensor_str _utils_internal _vendor _vmap_internals _weights_only_unpickler mps mtia numa package quantization xpu""".split()
)
PARENTS = {"_C", "_higher_order_ops"}  # those with tables below them
NAMES = MODULES | TABLES
# dtypes that Wisp lacks (see dtypes.py), with the bits of an element
ABSENT_DTYPES = {
    **dict.fromkeys("float4_e2m1fn_x2 qint8 quint8 quint4x2 quint2x4 bits8 bits1x8 bits2x4 bits4x2".split(), 8),
    **{"bits16": 16, "qint32": 32},
    "bit": 1,
    **{f"{kind}{bits}": bits for kind in ("int", "uint") for bits in range(1, 8)},
}
_FOLDER = [__path__[0] + "/modules"]
RENAMED = {}  # layers and parameters -> their modules, where programs run unmodified and these classes have PyTorch's names (alias.py)


def module_of(kind):
    """The module of a class, by the package's own name for it."""
    return RENAMED.get(kind) or kind.__module__


class Finder:
    """Finds the modules of this folder by the names that PyTorch gives them, and loads those that are tables."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        package, _, rest = name.partition(".")
        if package != "wisp":
            return None
        if rest in MODULES:
            spec = PathFinder.find_spec(name, _FOLDER)
            if rest in PARENTS and spec.submodule_search_locations is None:
                spec.submodule_search_locations = []
            return spec
        from wisp._compat.stubs import STUBS  # not before: `import wisp` asks for files alone

        if rest not in STUBS:
            return None
        return ModuleSpec(name, cls(), origin="wisp._compat.stubs", is_package=any(stub.startswith(rest + ".") for stub in STUBS))

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from wisp._compat.stubs import fill

        fill(module, module.__name__.partition(".")[2])


sys.meta_path.append(Finder())
