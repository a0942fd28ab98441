"""Graphs of launches: work is captured once and replayed with one call, without the host's cost for each kernel.

What is captured reads and writes the same memory at every replay: copy new inputs into the tensors that it was captured with.
Random numbers (dropout) are new ones at each replay, as if the work had run again.
"""

import wisp as _wisp
from wisp import _core
from wisp.cuda.streams import Stream, StreamContext
from wisp.utils import _pytree

_cuda = _core._operators["_cuda"]


def is_current_stream_capturing():
    """Whether the work sent now is captured rather than run."""
    from wisp.cuda import current_stream, is_available

    return is_available() and _cuda["is_capturing"](current_stream().cuda_stream)


def graph_pool_handle():
    """A name for a memory pool that several graphs may share: `graph(g, pool=...)`."""
    return (0, _cuda["new_pool"]())


_ERROR_MODES = ("global", "thread_local", "relaxed")


class CUDAGraph:
    """Captured work. `with wisp.cuda.graph(g): ...` captures, `g.replay()` runs it again.

    Its memory comes from a pool of its own, or from one that it shares with other graphs, and is lent to nobody else while one of
    them lives. Graphs that share a pool are to be replayed in the order of their captures, and not at the same time.
    """

    def __init__(self, keep_graph=False, *, _random_of=None):
        self._handle, self._pool = 0, None
        self._stream = None
        # Device memory that moves random numbers on; a backward graph reads that of its forward graph.
        self._shares, self._cell, self._drawn = _random_of, None, 0

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Capture what is sent to the current stream from here on."""
        from wisp.cuda import current_stream, default_stream

        if self._handle or self._pool is not None:
            raise RuntimeError("CUDAGraph.capture_begin: this graph was captured before; call reset() first, or make another CUDAGraph")
        if capture_error_mode not in _ERROR_MODES:
            raise RuntimeError(
                f"CUDAGraph.capture_begin: unknown capture_error_mode {capture_error_mode!r}; expected one of " + ", ".join(_ERROR_MODES)
            )
        stream = current_stream()
        if stream == default_stream():
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream: use `with wisp.cuda.graph(g): ...`, or "
                "`with wisp.cuda.stream(s):` around it"
            )
        self._stream = stream
        self._cell = self._shares._cell if self._shares else _wisp.zeros(2, dtype=_wisp.int64, device="cuda")
        self._start = _cuda["random_state"]()
        self._pool = graph_pool_handle() if pool is None else tuple(pool)
        _cuda["hold_pool"](self._pool[1])
        _cuda["random_begin"](self._cell)
        try:
            _cuda["graph_begin"](stream.cuda_stream, self._pool[1])
        except BaseException:
            _cuda["random_end"](*self._start)
            self.reset()
            raise

    def capture_end(self):
        """End the capture and make the graph ready."""
        if self._stream is None:
            raise RuntimeError("CUDAGraph.capture_end: nothing is being captured; call capture_begin first")
        self._drawn = _cuda["random_end"](*self._start)
        try:
            self._handle = _cuda["graph_end"](self._stream.cuda_stream)
        except BaseException:
            self.reset()
            raise

    def replay(self):
        """Run the captured work on the current stream."""
        from wisp.cuda import current_stream

        if not self._handle:
            raise RuntimeError("CUDAGraph.replay: nothing was captured; use `with wisp.cuda.graph(g): ...` first")
        if self._drawn:
            _cuda["random_replay"](self._cell, *self._start, self._drawn)
        _cuda["graph_launch"](self._handle, current_stream().cuda_stream)

    def reset(self):
        """Give up the graph, and its memory if no other graph shares it."""
        handle, pool = self._handle, self._pool
        self._handle, self._pool, self._stream = 0, None, None
        if handle:
            _cuda["graph_destroy"](handle)
        if pool is not None:
            _cuda["let_go_of_pool"](pool[1])

    def pool(self):
        """The graph's memory pool, for other graphs to share."""
        if self._pool is None:
            raise RuntimeError("CUDAGraph.pool: nothing was captured yet")
        return self._pool

    def __del__(self):
        self.reset()


class graph:
    """A context in which work is captured into a `CUDAGraph` instead of being run."""

    _streams = {}  # the one that captures use unless told otherwise, by device

    def __init__(
        self, cuda_graph, pool=None, stream=None, capture_error_mode="global", enable_annotations=False, check_input_liveness=False
    ):
        if enable_annotations or check_input_liveness:
            raise NotImplementedError("cuda.graph: kernels are not annotated here, and inputs not followed; leave both options off")
        self.cuda_graph, self.pool, self.stream, self.mode = cuda_graph, pool, stream, capture_error_mode

    def __enter__(self):
        from wisp.cuda import current_device, synchronize

        synchronize()
        stream, index = self.stream, current_device()
        if stream is None:
            stream = self._streams.get(index)
            if stream is None:
                stream = self._streams[index] = Stream._of(_cuda["own_stream"](index), index)
        self._context = StreamContext(stream)
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.mode)
        except BaseException:
            self._context.__exit__()
            raise

    def __exit__(self, kind, error, trace):
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if kind is None:
                raise  # otherwise the first error says what went wrong
        finally:
            self._context.__exit__()


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Functions or modules whose forward and backward are replayed graphs, for inputs of the shapes of `sample_args`.

    Several are captured in the order given, as they are to be called, and share their memory. A module runs as before while its
    `training` differs from what it was at the capture.
    """
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    pool = graph_pool_handle() if pool is None else pool
    made = [_Graphed(*pair, num_warmup_iters, allow_unused_input) for pair in zip(callables, sample_args)]
    for g in made:
        g.capture_forward(pool)
    for g in reversed(made):
        g.capture_backward(pool)
    results = tuple(g.callable() for g in made)
    return results[0] if single else results


class _Graphed:
    """One function or module with its two graphs, and the tensors that they read and write."""

    def __init__(self, function, sample, warmup, allow_unused):
        self.function, self.allow_unused = function, allow_unused
        self.module = module = function if isinstance(function, _wisp.nn.Module) else None
        if module is not None:
            if module._backward_hooks or module._forward_hooks or module._forward_pre_hooks:
                raise RuntimeError("make_graphed_callables: modules must have no hooks when they are captured; register them on the result")
            if any(b.requires_grad for b in module.buffers()):
                raise RuntimeError("make_graphed_callables: a buffer of the module requires grad; only parameters may")
        sample, self.structure = _pytree.tree_flatten(tuple(sample))
        if not all(isinstance(x, _wisp.Tensor) for x in sample):
            raise TypeError("make_graphed_callables: sample_args must be tensors, and tuples, lists and dicts of them")
        self.inputs = tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in sample)
        self.parameters = tuple(p for p in module.parameters() if p.requires_grad) if module is not None else ()
        self.leaves = tuple(x for x in self.inputs if x.requires_grad) + self.parameters
        self.call = module.forward if module is not None else function
        side = Stream()
        side.wait_stream(_wisp.cuda.current_stream())
        with StreamContext(side):
            for _ in range(warmup):
                outs = [o for o in self.outputs()[0] if o.requires_grad]
                if outs and self.leaves:
                    self.gradients(outs, [_wisp.empty_like(o) for o in outs])
        _wisp.cuda.current_stream().wait_stream(side)

    def outputs(self):
        return _pytree.tree_flatten(self.call(*_pytree.tree_unflatten(self.inputs, self.structure)))

    def gradients(self, outs, grads):
        return _wisp.autograd.grad(outs, self.leaves, grads, allow_unused=self.allow_unused)

    def capture_forward(self, pool):
        self.forward = CUDAGraph()
        with graph(self.forward, pool):
            self.outs, self.out_structure = self.outputs()
        self.outs = tuple(self.outs)

    def capture_backward(self, pool):
        self.backward, self.grads_out, self.grads_in = None, (), ()
        outs = tuple(o for o in self.outs if o.requires_grad)
        if not outs or not self.leaves:
            return
        self.grads_out = tuple(_wisp.empty_like(o) if o.requires_grad else None for o in self.outs)
        self.backward = CUDAGraph(_random_of=self.forward)
        with graph(self.backward, pool):
            self.grads_in = self.gradients(outs, [g for g in self.grads_out if g is not None])

    def callable(self):
        g = self

        class Replay(_wisp.autograd.Function):
            @staticmethod
            def forward(ctx, *given):
                for mine, x in zip(g.inputs, given):
                    if mine.data_ptr() != x.data_ptr():
                        mine.detach().copy_(x)
                g.forward.replay()
                outs = tuple(o.detach() for o in g.outs)
                ctx.mark_non_differentiable(*(new for new, o in zip(outs, g.outs) if not o.requires_grad))
                return outs

            @staticmethod
            @_wisp.autograd.function.once_differentiable
            def backward(ctx, *grads):
                for mine, given in zip(g.grads_out, grads):
                    if mine is None:
                        continue
                    if given is None:
                        mine.zero_()
                    elif mine.data_ptr() != given.data_ptr():
                        mine.copy_(given)
                g.backward.replay()
                found = iter(None if x is None else x.detach() for x in g.grads_in)
                return tuple(next(found) if x.requires_grad else None for x in g.inputs) + tuple(found)

        def replayed(*given):
            given, structure = _pytree.tree_flatten(given)
            if len(given) != len(g.inputs) or structure != g.structure:
                raise TypeError(
                    f"a graphed callable takes what it was captured with, {len(g.inputs)} tensors in the same structure; got {len(given)}"
                )
            for i, (mine, x) in enumerate(zip(g.inputs, given)):
                if x.shape != mine.shape or x.dtype != mine.dtype:
                    raise RuntimeError(
                        f"a graphed callable takes tensors like those it was captured with: argument {i} is "
                        f"{tuple(x.shape)} {x.dtype}, captured were {tuple(mine.shape)} {mine.dtype}"
                    )
            return _pytree.tree_unflatten(Replay.apply(*given, *g.parameters), g.out_structure)

        if g.module is None:
            return replayed
        plain, training = g.module.forward, g.module.training
        g.module.forward = lambda *given: replayed(*given) if g.module.training == training else plain(*given)
        return g.module
