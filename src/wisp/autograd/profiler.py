"""The profiler under its older name: `autograd.profiler.profile`. See `wisp.profiler`."""

import copy

import wisp
from wisp import _reference
from wisp import profiler as _profiler
from wisp.profiler import EventList, FunctionEvent, FunctionEventAvg, record_function

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "emit_itt", "emit_nvtx", "profile", "record_function"]


class profile(_profiler.profile):
    """`wisp.profiler.profile` with the older arguments, and the results as its own methods.

    >>> with profile() as prof:
    ...     y = wisp.ones(3) * 2
    >>> "mul" in prof.table()
    True
    """

    def __init__(
        self,
        enabled=True,
        *,
        use_cuda=False,
        use_device=None,
        record_shapes=False,
        with_flops=False,
        profile_memory=False,
        with_stack=False,
        with_modules=False,
        use_kineto=True,
        use_cpu=True,
        experimental_config=None,
        acc_events=False,
        custom_trace_id_callback=None,
    ):
        super().__init__(
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_modules=with_modules,
        )
        self.enabled = enabled

    def __enter__(self):
        return super().__enter__() if self.enabled else self

    @property
    def function_events(self):
        """The events, operators under the names that PyTorch gives them: "aten::mul"."""
        named = [copy.copy(event) for event in self._events]
        for event in named:
            if event.kind == "op":
                event.name = f"aten::{event.name}"
        return type(self._events)(named, self._events.profile_memory)

    def table(self, *args, **kwargs):
        """The events as a table."""
        return self.events().table(*args, **kwargs)

    def total_average(self):
        """The sum of everything."""
        return self.events().total_average()

    @property
    def self_cpu_time_total(self):
        """Microseconds in all."""
        return self.events().self_cpu_time_total

    def __str__(self):
        return self.table() if self._events is not None else "<unfinished profiler_legacy.profile>"


class emit_nvtx:
    """Marks operators for NVIDIA's profilers, which needs CUDA: without it, entering says so."""

    def __init__(self, enabled=True, record_shapes=False):
        self.enabled = enabled

    def __enter__(self):
        if self.enabled and not wisp.cuda.is_available():
            raise RuntimeError("emit_nvtx(): NVTX marks need CUDA, which is not available here; use wisp.profiler.profile instead")
        return self

    def __exit__(self, *_):
        return None


class emit_itt(emit_nvtx):
    """Marks operators for Intel's VTune, which Wisp does not do: entering says so."""

    def __enter__(self):
        if self.enabled:
            raise RuntimeError("emit_itt(): ITT marks are not supported; use wisp.profiler.profile instead")
        return self


_reference.attach(__name__, globals())
