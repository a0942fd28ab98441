"""The names of wisp.cuda, devices of tensors and modules, and mixtures of them, on the stand-in GPUs. Run by test_host.py."""

import copy
import sys
import warnings

import wisp
import wisp.nn.functional as F
from wisp import cuda, nn


def raises(kind, part, f, *given):
    try:
        f(*given)
    except kind as error:
        assert part in str(error), error
        return
    raise AssertionError(f"no {kind.__name__} with {part!r}")


def devices():
    zeros = wisp.zeros(2), wisp.zeros(2, device="cuda:1")
    for given, index in ((1, 1), (None, 0), (-1, 0), ("cuda:1", 1), (wisp.device("cuda", 1), 1)):
        with cuda.device(given):
            assert cuda.current_device() == index and wisp.zeros(2, device="cuda").device.index == index
    for tensor, index in zip(zeros, (0, 1)):
        with cuda.device_of(tensor):
            assert cuda.current_device() == index
    with wisp.device("cuda:1"):
        made = [wisp.zeros(2), wisp.tensor([1.0]), wisp.arange(3), wisp.randn(2), nn.Linear(2, 2).weight]
        assert all(t.device == wisp.device("cuda:1") for t in made)
    wisp.set_default_device("cuda")
    assert wisp.zeros(1).is_cuda and wisp.get_default_device() == wisp.device("cuda:0")
    wisp.set_default_device("cpu")
    properties = cuda.get_device_properties("cuda:1")
    assert properties.name == cuda.get_device_name(1) and cuda.get_device_capability() == (9, 0) and properties.multi_processor_count == 132
    assert cuda.is_tf32_supported() and cuda.is_bf16_supported() and cuda.get_arch_list() == ["sm_90"]
    state = cuda.get_rng_state()
    first = wisp.rand(4)
    cuda.set_rng_state(state)
    assert wisp.equal(wisp.rand(4), first)
    cuda.manual_seed_all(3)
    cuda.set_rng_state_all(cuda.get_rng_state_all())
    assert cuda.initial_seed() == 3
    raises(RuntimeError, "invalid device ordinal", nn.Linear(2, 2).cuda, 7)


def streams():
    other = cuda.Stream(device=1, priority=-1)
    for context in (cuda.stream(other), other):
        with context:
            assert cuda.current_device() == 1 and cuda.current_stream() == other and cuda.current_stream(0) == cuda.default_stream(0)
        assert cuda.current_device() == 0
    with cuda.stream(None):
        assert cuda.current_stream() == cuda.default_stream()
    assert len({cuda.Stream().cuda_stream for _ in range(200)}) == 32  # given out again in turn
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    assert start.query() and start.device is None
    raises(ValueError, "recorded", start.elapsed_time, end)
    raises(ValueError, "enable_timing", cuda.Event().elapsed_time, end)
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0 and start.device == wisp.device("cuda:0")
    raises(RuntimeError, "does not match", start.record, other)
    other.record_event().wait(cuda.current_stream())
    other.wait_stream(cuda.current_stream())
    cuda.current_stream().wait_event(cuda.Event())


def statistics():
    held = wisp.zeros(1000, device="cuda")
    stats = cuda.memory_stats()
    assert cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == cuda.memory_allocated() == held.numel() * 4 + 96
    assert stats["allocation.all.current"] == 1 and stats["num_ooms"] == 0 and "held by tensors" in cuda.memory_summary()
    cuda.reset_accumulated_memory_stats()
    cuda.reset_peak_memory_stats()
    assert cuda.memory_stats()["allocation.all.allocated"] == 0 and cuda.max_memory_allocated() == cuda.memory_allocated()
    cuda.set_per_process_memory_fraction(0.01)
    raises(cuda.OutOfMemoryError, "set_per_process_memory_fraction", lambda: wisp.zeros(1 << 28, device="cuda"))
    cuda.set_per_process_memory_fraction(1.0)
    assert cuda.memory_stats()["num_ooms"] == 1 and wisp.zeros(1 << 28, device="cuda").is_cuda
    raises(RuntimeError, "too large", lambda: wisp.empty(2**61, device="cuda"))
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        place = wisp.zeros(1000, device="cuda").data_ptr()
    kept = wisp.zeros(1000, device="cuda")
    with cuda.use_mem_pool(pool):
        assert kept.data_ptr() != place == wisp.zeros(1000, device="cuda").data_ptr()
    # What is left of a large block is used before memory runs out.
    cuda.empty_cache()
    whole = wisp.empty(int(7.9 * 2**30), dtype=wisp.uint8, device="cuda")
    del whole
    part = wisp.empty(int(3 * 2**30), dtype=wisp.uint8, device="cuda")
    rest = [wisp.empty(5 << 20, dtype=wisp.uint8, device="cuda") for _ in range(100)]
    assert part.is_cuda and len(rest) == 100


def snapshot_of_memory():
    cuda.empty_cache()
    held, freed = wisp.zeros(1000, device="cuda"), wisp.zeros(3000, device="cuda")
    place = freed.data_ptr()
    del freed
    segments = [s for s in cuda.memory_snapshot() if held.data_ptr() in [b["address"] for b in s["blocks"]]]
    (segment,) = segments
    states = {b["address"]: b["state"] for b in segment["blocks"]}
    assert states[held.data_ptr()] == "active_allocated" and states.get(place, "inactive") == "inactive"
    assert segment["total_size"] == sum(b["size"] for b in segment["blocks"]) and segment["segment_type"] == "small"
    assert sum(s["total_size"] for s in cuda.memory_snapshot() if s["device"] == 0) == cuda.memory_reserved(0)
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        private = wisp.zeros(1000, device="cuda")
    assert [b["address"] for s in cuda.memory_snapshot(pool.id) for b in s["blocks"]][0] == private.data_ptr()
    del private


def memory_without_cache():
    cuda.empty_cache()
    before = cuda.memory_reserved()
    with cuda.caching_allocator_disabled():
        exact = wisp.zeros(1 << 22, device="cuda")
        assert cuda.memory_reserved() == before + (1 << 24)
        assert exact.data_ptr() in [s["address"] for s in cuda.memory_snapshot()]
        del exact
        assert cuda.memory_reserved() == before
    kept = wisp.zeros(1 << 22, device="cuda")
    del kept
    assert cuda.memory_reserved() > before


def waiting_is_told():
    x = wisp.ones(3, device="cuda")
    cuda.set_sync_debug_mode("error")
    try:
        assert cuda.get_sync_debug_mode() == 2
        raises(RuntimeError, "synchronizing CUDA operation", x.sum().item)
        assert (x + x).is_cuda
        cuda.set_sync_debug_mode(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x.tolist()
        assert any("synchronizing CUDA operation" in str(w.message) for w in caught)
    finally:
        cuda.set_sync_debug_mode("default")
    raises(RuntimeError, "expected one of", cuda.set_sync_debug_mode, "loud")


def pinned_statistics():
    cuda.reset_accumulated_host_memory_stats()
    before = cuda.host_memory_stats()["active_bytes.current"]
    first = wisp.empty(5000, dtype=wisp.uint8, pin_memory=True)
    assert first.is_pinned() and cuda.host_memory_stats()["active_bytes.current"] == before + 8192  # by powers of two
    assert cuda.host_memory_stats_as_nested_dict()["active_requests"]["allocated"] == 1
    del first
    stats = cuda.host_memory_stats()
    assert stats["active_bytes.current"] == before and stats["active_bytes.peak"] >= before + 8192
    cuda.reset_peak_host_memory_stats()
    assert cuda.host_memory_stats()["active_bytes.peak"] == before and stats["allocated_bytes.current"] >= 8192


def graphs():
    x = wisp.zeros(1 << 20, device="cuda")
    before = cuda.memory_reserved()
    g, shared = cuda.CUDAGraph(), cuda.CUDAGraph()
    with cuda.graph(g):
        y = (x * 2 + 1).sum()
        assert cuda.is_current_stream_capturing()
    cuda.empty_cache()
    held = cuda.memory_reserved()
    assert held > before, "the memory of a graph was given back"
    with cuda.graph(shared, pool=g.pool()):
        z = (x * 2 + 1).sum()
    assert cuda.memory_reserved() == held and shared.pool() == g.pool()
    g.replay()
    shared.replay()
    # On the stream of a capture, other work does not get the graph's memory.
    own, side = cuda.CUDAGraph(), cuda.Stream()
    with cuda.stream(side):
        own.capture_begin()
        place = (x + 1).data_ptr()
        own.capture_end()
        assert (x + 1).data_ptr() != place
    del y, z
    for each in (g, shared, own):
        each.reset()
    cuda.empty_cache()
    assert cuda.memory_reserved() <= before + (22 << 20)
    for kind, part, f in (
        (RuntimeError, "nothing was captured", g.replay),
        (RuntimeError, "nothing was captured", g.pool),
        (RuntimeError, "non-default stream", cuda.CUDAGraph().capture_begin),
        (RuntimeError, "capture_begin first", cuda.CUDAGraph().capture_end),
    ):
        raises(kind, part, f)
    try:
        with cuda.graph(cuda.CUDAGraph()):
            raise KeyError("of the program")
    except KeyError:
        assert not cuda.is_current_stream_capturing()
    reserved = cuda.memory_reserved()
    for _ in range(20):
        again = cuda.CUDAGraph()
        with cuda.graph(again):
            made = wisp.zeros(1 << 20, device="cuda") * 2
        again.replay()
        del again, made
    assert cuda.memory_reserved() <= reserved

    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).cuda()
    given = wisp.randn(3, 8, device="cuda", requires_grad=True)
    assert cuda.make_graphed_callables(net, (given,)) is net
    net(given).sum().backward()
    assert net[0].weight.grad is not None and given.grad is not None
    net.eval()
    assert net(given[:1]).shape == (1, 4)  # not the graph
    f, _ = cuda.make_graphed_callables(
        (lambda a, b: (a * b, {"k": a.detach() + 1}), nn.Linear(8, 2).cuda()), ((given, given.detach()), (given,))
    )
    product, more = f(given, given.detach())
    assert product.requires_grad and not more["k"].requires_grad
    product.sum().backward()
    raises(RuntimeError, "captured were (3, 8)", f, given[:2], given.detach())
    raises(TypeError, "2 tensors", f, given)


def moves():
    x = wisp.randn(2, 3, 4, 4)
    g = x.cuda()
    last = wisp.channels_last
    assert x.to("cuda", wisp.float64).dtype == wisp.float64 and x.to(wisp.device("cuda:1")).device.index == 1
    moved = x.to(device="cuda", dtype=wisp.half, non_blocking=True, copy=True, memory_format=last)
    assert moved.is_contiguous(memory_format=last) and moved.dtype == wisp.half and moved.is_cuda
    assert g.to("cuda") is g and g.to("cuda:0", copy=True) is not g and g.to(g) is g and x.to(g).is_cuda and g.to(wisp.float32) is g
    assert g.to(0) is g and x.to(1).get_device() == x.cuda(1).get_device() == x.cuda("cuda:1").get_device() == 1 and x.get_device() == -1
    assert x.to(x.double().cuda()).dtype == wisp.float64 and g.cpu().device.type == "cpu" and g.cuda() is g
    assert x.cuda(device=1, non_blocking=True).is_cuda and g.new_zeros(2).is_cuda and g.type() == "torch.cuda.FloatTensor"
    assert x.type("torch.cuda.FloatTensor").is_cuda and wisp.empty_like(g).is_cuda and not wisp.zeros_like(g, device="cpu").is_cuda
    assert copy.deepcopy(g).is_cuda and "device='cuda:0'" in repr(g)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).cuda()
    assert net[1].running_mean.is_cuda and net.half()[0].weight.dtype == wisp.half and net[1].num_batches_tracked.dtype == wisp.int64
    net.to("cpu", wisp.float64).to(device="cuda:1").to(wisp.float32).to(g)
    assert (
        net[0].weight.device.index == 0
        and net.to_empty(device="meta")[0].weight.is_meta
        and net.to_empty(device="cuda:1")[0].weight.is_cuda
    )
    with wisp.device("meta"):
        large = nn.ModuleList(
            [nn.Linear(10**5, 10**5), nn.LSTM(3, 4), nn.Conv2d(3, 4, 3), nn.Transformer(16, 2, 1, 1), nn.EmbeddingBag(4, 3)]
        )
    assert all(p.is_meta for p in large.parameters())


def across():
    """A network on three devices, and optimizers that see all of it."""
    x = wisp.randn(3, 8, device="cuda:0", requires_grad=True)
    parts = nn.Linear(8, 8).cuda(0), nn.Linear(8, 2).cuda(1), nn.Linear(2, 2)
    parts[2](parts[1](parts[0](x).relu().to("cuda:1")).cpu()).sum().backward()
    parameters = [p for part in parts for p in part.parameters()]
    assert all(p.grad.device == p.device for p in parameters) and x.grad.device == x.device
    nn.utils.clip_grad_norm_(parameters, 1.0)
    for optimizer in (wisp.optim.AdamW(parameters), wisp.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)):
        optimizer.step()


def mixtures():
    """Tensors on different devices are refused, by an error that names both."""
    c, g, h = wisp.ones(2, 2), wisp.ones(2, 2, device="cuda"), wisp.ones(2, 2, device="cuda:1")
    i = wisp.zeros(2, dtype=wisp.long)
    leaf = wisp.ones(2, 2, device="cuda", requires_grad=True)
    for f in (
        lambda: c + g,
        lambda: g @ c,
        lambda: wisp.cat([g, h]),
        lambda: wisp.stack([c, h]),
        lambda: F.linear(g, c),
        lambda: F.linear(g, g, c[0]),
        lambda: F.mse_loss(g, c),
        lambda: F.cross_entropy(g, i),
        lambda: F.embedding(i.cuda(), c),
        lambda: F.embedding(i, g),
        lambda: wisp.where(c > 0, g, g),
        lambda: g.add_(c),
        lambda: g.gather(0, i[None]),
        lambda: g.index_select(0, i),
        lambda: g.take(i),
        lambda: F.batch_norm(g, c[0], c[0]),
        lambda: F.layer_norm(g, (2,), c[0]),
        lambda: F.conv1d(g[None], c[None]),
        lambda: wisp.addmm(c, g, g),
        lambda: F.scaled_dot_product_attention(g, g, c),
        lambda: wisp.lerp(g, g, c),
        lambda: g.scatter(0, i[None].cuda(), c),
        lambda: g.masked_fill(c > 0, 1),
        lambda: g.masked_select(h > 0),
        lambda: wisp.linalg.solve(g, c),
        lambda: nn.LSTM(2, 3).cuda()(c),
        lambda: wisp.cdist(g, c),
        lambda: wisp.einsum("ij,jk", g, c),
        lambda: g[0].dot(h[0]),
        lambda: wisp.add(g, g, out=c),
        lambda: F.nll_loss(g, i),
        lambda: wisp.bucketize(g, c[0]),
        lambda: wisp._foreach_add([g], [c]),
        lambda: wisp.addcmul(g, c, g),
        lambda: g.clamp(c),
        lambda: wisp.cumsum(g, 0, out=h),
        lambda: wisp.equal(g, c),
        lambda: nn.Conv2d(1, 1, 1)(g[None, None]),
        lambda: (leaf * 2).backward(c),
        lambda: setattr(leaf, "grad", c),
        lambda: nn.MultiheadAttention(2, 1).cuda()(c, c, c),
    ):
        try:
            f()
        except RuntimeError as error:
            text = str(error)
            assert "cuda:0" in text and ("cpu" in text or "cuda:1" in text) or "cpu" in text and "cuda:1" in text, text
        else:
            raise AssertionError("tensors on two devices were mixed")
    raises(TypeError, "Tensor.cpu()", g.numpy)


def exchanged():
    """Memory of the GPU goes to other libraries and comes back as it is, through DLPack and CUDA's array interface."""
    g = wisp.zeros(4, 6).cuda()[1:, ::2]
    assert g.__dlpack_device__() == (2, 0) and wisp.zeros(1).__dlpack_device__() == (1, 0)
    for back in (wisp.from_dlpack(g), wisp.from_dlpack(wisp.utils.dlpack.to_dlpack(g))):
        assert (back.device, back.shape, back.stride(), back.data_ptr()) == (g.device, g.shape, g.stride(), g.data_ptr())
        assert (back + g).device == g.device
    with wisp.cuda.stream(wisp.cuda.Stream()):
        assert wisp.from_dlpack(g).data_ptr() == g.data_ptr()
    assert wisp.from_dlpack(g, device="cpu").device.type == "cpu" and wisp.from_dlpack(g, copy=True).data_ptr() != g.data_ptr()
    raises(BufferError, "cuda:0", lambda: g.__dlpack__(dl_device=(1, 0), copy=False))
    before = wisp.cuda.memory_allocated()
    given = wisp.zeros(1000, device="cuda")
    taken = wisp.from_dlpack(given)
    del given
    assert wisp.cuda.memory_allocated() > before  # the taker keeps it
    del taken
    assert wisp.cuda.memory_allocated() == before
    seen = g.__cuda_array_interface__
    assert seen == {"typestr": "<f4", "shape": (3, 3), "strides": (24, 8), "data": (g.data_ptr(), False), "version": 2}
    assert g.contiguous().__cuda_array_interface__["strides"] is None and not hasattr(wisp.zeros(1), "__cuda_array_interface__")
    raises(RuntimeError, "detach", lambda: g.clone().requires_grad_().__cuda_array_interface__)
    raises(TypeError, "BFloat16", lambda: g.bfloat16().__cuda_array_interface__)


def made_in_python():
    """What is composed in Python makes its tensors where its inputs are."""
    from wisp.nn.attention.bias import causal_lower_right
    from wisp.vision import ops
    from wisp.vision.transforms import functional as images

    picture, q = wisp.zeros(3, 16, 16, dtype=wisp.uint8).cuda(), wisp.rand(1, 2, 4, 8).cuda()
    z, boxes, score = wisp.zeros(3, 3).cuda(), wisp.tensor([[0.0, 0, 5, 5], [1, 1, 6, 6]]).cuda(), wisp.tensor([0.5, 0.7]).cuda()
    corners = [[0, 0], [15, 0], [15, 15], [0, 15]]
    wisp.distributions.Distribution.set_default_validate_args(False)
    for f in (
        lambda: ops.nms(boxes, score, 0.5),
        lambda: ops.box_iou(boxes, boxes),
        lambda: images.rotate(picture, 30, fill=[1]),
        lambda: images.affine(picture, 10, [1, 1], 1.1, [3, 3], fill=[1, 2, 3]),
        lambda: images.perspective(picture, corners, corners),
        lambda: images.adjust_sharpness(picture, 2),
        lambda: images.gaussian_blur(picture, 3),
        lambda: images.elastic_transform(picture, wisp.zeros(1, 16, 16, 2).cuda()),
        lambda: images.pad(picture, [1], padding_mode="symmetric"),
        lambda: wisp.fft.fftfreq(5, device="cuda"),
        lambda: wisp.fft.rfftfreq(5, device="cuda"),
        lambda: wisp.signal.windows.kaiser(5, device="cuda"),
        lambda: wisp.UntypedStorage(10, device="cuda"),
        lambda: wisp.sparse_coo_tensor(size=(3, 3), device="cuda").to_dense(),
        lambda: wisp.tensor(3.0).cuda().to_sparse().to_dense(),
        lambda: wisp.sparse.mm(z.to_sparse(), z),
        lambda: wisp.masked.mean(z, 1),
        lambda: wisp.masked.std(z, 1, unbiased=True),
        lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=causal_lower_right(4, 4)),
        lambda: nn.BatchNorm2d(3, device="cuda").num_batches_tracked,
        lambda: wisp.distributions.Normal(score, score).sample(),
        lambda: wisp.distributions.MixtureSameFamily(
            wisp.distributions.Categorical(score), wisp.distributions.Normal(score, score)
        ).sample(),
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]).cuda()(wisp.rand(4, 8).cuda(), wisp.tensor([1, 6, 11, 2]).cuda()).output,
        lambda: nn.utils.rnn.pad_sequence([z, z[:2]]),
        lambda: wisp.func.hessian(lambda a: (a**2).sum())(z[0]),
    ):
        assert f().device.type == "cuda"


globals()[sys.argv[1]]()
