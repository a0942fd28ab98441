"""Switches and facts of the backends, under PyTorch's names."""
import types as _types

from wisp import _core as _c

cpu = _types.SimpleNamespace(get_cpu_capability=lambda: _c._cpu_capability().upper())
cudnn = _types.SimpleNamespace(enabled=True, benchmark=False, deterministic=True, allow_tf32=False,
                               is_available=lambda: False, version=lambda: None)
cuda = _types.SimpleNamespace(matmul=_types.SimpleNamespace(allow_tf32=False), is_built=lambda: False)
mps = _types.SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
mkl = _types.SimpleNamespace(is_available=lambda: False)
mkldnn = _types.SimpleNamespace(is_available=lambda: False, enabled=False)
openmp = _types.SimpleNamespace(is_available=lambda: False)
