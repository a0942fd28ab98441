"""Graphs of launches: work is captured once and replayed with one call, without the host's cost for each kernel.

What is captured reads and writes the same memory at every replay: copy new inputs into the tensors that it was captured with.
Random numbers (dropout) are new ones at each replay, as if the work had run again.
"""

import wisp as _wisp
from wisp import _core
from wisp.cuda.streams import Stream, StreamContext

_cuda = _core._operators["_cuda"]


def is_current_stream_capturing():
    """Whether the work sent now is captured rather than run."""
    from wisp.cuda import current_stream, is_available

    return is_available() and _cuda["is_capturing"](current_stream().cuda_stream)


def graph_pool_handle():
    """A name for a memory pool; every graph has one of its own."""
    return object()


class CUDAGraph:
    """Captured work. `with wisp.cuda.graph(g): ...` captures, `g.replay()` runs it again.

    The memory of what was captured stays with the graph: its stream is its own, and blocks are never lent to other streams.
    """

    def __init__(self, keep_graph=False, *, _random_of=None):
        self._handle = 0
        self._stream = None
        # Device memory that moves random numbers on; a backward graph reads that of its forward graph.
        self._shares, self._cell, self._drawn = _random_of, None, 0

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Capture what is sent to the current stream from here on."""
        from wisp.cuda import current_stream

        self._stream = current_stream()
        self._cell = self._shares._cell if self._shares else _wisp.zeros(2, dtype=_wisp.int64, device="cuda")
        self._start = _cuda["random_state"]()
        _cuda["random_begin"](self._cell)
        try:
            _cuda["graph_begin"](self._stream.cuda_stream)
        except BaseException:
            _cuda["random_end"](*self._start)
            raise

    def capture_end(self):
        """End the capture and make the graph ready."""
        self._drawn = _cuda["random_end"](*self._start)
        self._handle = _cuda["graph_end"](self._stream.cuda_stream)

    def replay(self):
        """Run the captured work on the current stream."""
        from wisp.cuda import current_stream

        if not self._handle:
            raise RuntimeError("CUDAGraph.replay: nothing was captured; use `with wisp.cuda.graph(g): ...` first")
        if self._drawn:
            _cuda["random_replay"](self._cell, *self._start, self._drawn)
        _cuda["graph_launch"](self._handle, current_stream().cuda_stream)

    def reset(self):
        """Give up the graph."""
        if self._handle:
            _cuda["graph_destroy"](self._handle)
            self._handle = 0

    def pool(self):
        """The graph's memory pool."""
        return self._stream

    def __del__(self):
        self.reset()


class graph:
    """A context in which work is captured into a `CUDAGraph` instead of being run."""

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        self.graph, self.stream = cuda_graph, stream

    def __enter__(self):
        from wisp.cuda import synchronize

        synchronize()
        self._context = StreamContext(Stream() if self.stream is None else self.stream)
        self._context.__enter__()
        self.graph.capture_begin()

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.graph.capture_end()
            else:
                try:
                    self.graph.capture_end()
                except RuntimeError:
                    pass  # the first error says what went wrong
        finally:
            self._context.__exit__()


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Functions or modules whose forward and backward are replayed graphs, for inputs of the shapes of `sample_args`."""
    single = not isinstance(callables, tuple)
    pairs = [(callables, sample_args)] if single else zip(callables, sample_args)
    made = tuple(_graphed(function, arguments, num_warmup_iters) for function, arguments in pairs)
    return made[0] if single else made


def _graphed(function, sample, warmup):
    module = function if isinstance(function, _wisp.nn.Module) else None
    parameters = tuple(p for p in module.parameters() if p.requires_grad) if module else ()
    inputs = tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in sample)
    leaves = tuple(x for x in inputs if x.requires_grad) + parameters
    call = module.forward if module else function

    side = Stream()
    side.wait_stream(_wisp.cuda.current_stream())
    with StreamContext(side):
        for _ in range(warmup):
            out = call(*inputs)
            first = out[0] if isinstance(out, tuple) else out
            if leaves:
                _wisp.autograd.grad(first.sum(), leaves, allow_unused=True)
    _wisp.cuda.current_stream().wait_stream(side)
    del out, first

    forward = CUDAGraph()
    backward = CUDAGraph(_random_of=forward)
    with graph(forward):
        out = call(*inputs)
    outs = out if isinstance(out, tuple) else (out,)
    grads_out = tuple(_wisp.empty_like(o) for o in outs)
    grads_in = ()
    if leaves:
        with graph(backward, stream=forward.pool()):
            grads_in = _wisp.autograd.grad(outs, leaves, grads_out, allow_unused=True)

    class Replay(_wisp.autograd.Function):
        @staticmethod
        def forward(ctx, *given):
            for mine, x in zip(inputs, given):
                mine.detach().copy_(x)
            forward.replay()
            return tuple(o.detach() for o in outs)

        @staticmethod
        @_wisp.autograd.function.once_differentiable
        def backward(ctx, *grads):
            for mine, g in zip(grads_out, grads):
                mine.copy_(g)
            backward.replay()
            found = iter(grads_in)
            of_inputs = tuple(next(found) if x.requires_grad else None for x in inputs)
            return of_inputs + tuple(g.detach() if g is not None else None for g in found)

    def replayed(*given):
        result = Replay.apply(*given, *parameters)
        return result if isinstance(out, tuple) else result[0]

    if module is None:
        return replayed
    module.forward = replayed
    return module
