"""The operators of torchaudio's own library (`torch.ops.torchaudio`), which is built for PyTorch, and loaded when torchaudio is imported.

Recursive filters are solved block by block: within a block the recursion is a triangular system.
"""

import wisp

_BLOCK = 128


def cuda_version():
    """The version of CUDA that the library was built for: none.

    >>> wisp.ops._torchaudio.cuda_version()
    """
    return None


def is_align_available():
    """Whether there is `forced_align`.

    >>> wisp.ops._torchaudio.is_align_available()
    True
    """
    return True


@wisp.no_grad()
def _lfilter_core_loop(waveform, a_coeffs_flipped, padded_output):
    """y[t] = x[t] - a₁ y[t-1] - … for waveforms (batch, channels, time), written behind the `order` first values of `padded_output`.

    >>> y = wisp.zeros(1, 1, 5)
    >>> wisp.ops.torchaudio._lfilter_core_loop(wisp.tensor([[[1.0, 0.0, 0.0, 0.0]]]), wisp.tensor([[-0.5, 1.0]]), y)
    >>> y
    tensor([[[0.0000, 1.0000, 0.5000, 0.2500, 0.1250]]])
    """
    channels, taps = a_coeffs_flipped.shape
    order, time = taps - 1, waveform.shape[-1]
    size = min(_BLOCK, max(time, 1))
    # row i of the block's system has the coefficients in columns i to i + order; the first `order` columns are values before the block
    rows = waveform.new_zeros(channels, size, size + order)
    rows.as_strided((channels, size, taps), (size * (size + order), size + order + 1, 1)).copy_(a_coeffs_flipped[:, None])
    before, within = rows[:, :, :order], rows[:, :, order:]
    x, y = waveform.permute(1, 2, 0), padded_output.permute(1, 2, 0)
    for start in range(0, time, size):
        n = min(size, time - start)
        known = x[:, start : start + n] - before[:, :n] @ y[:, start : start + order]
        y[:, start + order : start + order + n] = wisp.linalg.solve_triangular(within[:, :n, :n], known, upper=False, unitriangular=True)


@wisp.no_grad()
def _overdrive_core_loop(waveform, temp, last_in, last_out, output_waveform):
    """A high-pass filter of `temp`, y[t] = u[t] - u[t-1] + 0.995 y[t-1], mixed with the waveform (rows of time).

    >>> x, y, none = wisp.ones(1, 3), wisp.empty(1, 3), wisp.zeros(1)
    >>> wisp.ops.torchaudio._overdrive_core_loop(x, x, none, none, y)
    >>> y
    tensor([[1.2500, 1.2463, 1.2425]])
    """
    steps = wisp.diff(temp, dim=1, prepend=last_in[:, None])
    filtered = wisp.cat([last_out[:, None], wisp.zeros_like(temp)], 1)[:, None]
    _lfilter_core_loop(steps[:, None], temp.new_tensor([[-0.995, 1.0]]), filtered)
    output_waveform.copy_(waveform * 0.5 + filtered[:, 0, 1:] * 0.75)


def _check_alignment(log_probs, targets, input_lengths, target_lengths, blank):
    def refuse_unless(good, text):
        if not good:
            raise RuntimeError(f"forced_align: {text}")

    floats, integers = (wisp.float64, wisp.float32, wisp.float16), (wisp.int32, wisp.int64)
    refuse_unless(log_probs.dtype in floats, f"log_probs must be float64, float32 or float16 (half) type, got {log_probs.dtype}")
    refuse_unless(targets.dtype in integers, f"targets must be int32 or int64 type, got {targets.dtype}")
    refuse_unless(log_probs.ndim == 3 and targets.ndim == 2, "log_probs must be 3-D (batch, steps, labels) and targets 2-D (batch, length)")
    for name, tensor in (("log_probs", log_probs), ("targets", targets)):
        refuse_unless(tensor.shape[0] == 1, f"The batch dimension for {name} must be 1 at the current version, got {tensor.shape[0]}")
    for name, tensor in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        refuse_unless(tensor.ndim == 1, f"{name} must be 1-D")
    refuse_unless(0 <= blank < log_probs.shape[2], f"blank must be within [0, num classes), got {blank} of {log_probs.shape[2]}")
    refuse_unless(int(input_lengths.max()) == log_probs.shape[1], "input length mismatch")
    refuse_unless(int(target_lengths.max()) == targets.shape[1], "target length mismatch")


@wisp.no_grad()
def forced_align(log_probs, targets, input_lengths, target_lengths, blank=0):
    """The most probable path of CTC through `targets`, for a batch of one: the label of every step, and `log_probs`.

    >>> likely = wisp.tensor([[[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]]).log()
    >>> wisp.ops.torchaudio.forced_align(likely, wisp.tensor([[1, 2]]), wisp.tensor([3]), wisp.tensor([2]))[0]
    tensor([[1, 0, 2]])
    """
    _check_alignment(log_probs, targets, input_lengths, target_lengths, blank)
    steps, length = int(input_lengths[0]), int(target_lengths[0])
    labels = targets[0, :length].tolist()
    repeats = sum(a == b for a, b in zip(labels, labels[1:]))
    if steps < length + repeats:
        raise RuntimeError(f"targets length is too long for CTC: {length} labels with {repeats} repeats in {steps} steps")
    between = [blank] + [label for target in labels for label in (target, blank)]  # a blank around every label
    states = wisp.tensor(between)
    # a label may follow another at once, if it is another
    leaps = wisp.tensor([i > 1 and i % 2 == 1 and between[i] != between[i - 2] for i in range(len(between))])
    local = log_probs[0, :steps].cpu().float()[:, states]
    best = wisp.full((len(between),), -wisp.inf)
    best[:2] = local[0, :2]
    moves = []
    for row in local[1:]:
        ways = wisp.full((3, len(between)), -wisp.inf)
        ways[0] = best
        ways[1, 1:] = best[:-1]
        ways[2, 2:] = best[:-2]
        ways[2].masked_fill_(~leaps, -wisp.inf)
        best, move = ways.max(0)
        best = best + row
        moves.append(move.tolist())
    last = len(between) - 1
    state = last - 1 if last and not best[last] > best[last - 1] else last
    path = [between[state]]
    for move in reversed(moves):
        state -= move[state]
        path.append(between[state])
    return wisp.tensor([path[::-1]], dtype=targets.dtype, device=log_probs.device), log_probs


def rnnt_loss_forward(logits, targets, logit_lengths, target_lengths, blank, clamp=-1.0, fused_log_softmax=True):
    """The transducer's loss of each sample, and its gradient by `logits` (batch, steps, labels + 1, classes).

    >>> loss, gradient = wisp.ops.torchaudio.rnnt_loss_forward(
    ...     wisp.zeros(1, 2, 1, 4), wisp.zeros(1, 0, dtype=wisp.int32), wisp.tensor([2]), wisp.tensor([0]), 3)
    >>> loss
    tensor([2.7726])
    """
    with wisp.enable_grad():
        inner = logits.detach().float().requires_grad_()
        known = inner.log_softmax(-1) if fused_log_softmax else inner
        batch, steps, states, _ = known.shape
        stay = known[..., blank]
        labels = targets.long()[:, None, :, None].expand(-1, steps, -1, 1)
        emitted = known[:, :, :-1].gather(3, labels)[..., 0].cumsum(2)
        emitted = wisp.nn.functional.pad(emitted, (1, 0))  # what all labels before a state cost, at one step
        # before each step: the states reached by blanks; within it: labels, one after another
        reached = wisp.full((batch, states), -wisp.inf, device=known.device)
        reached[:, 0] = 0.0
        rows = []
        for step in range(steps):
            rows.append(emitted[:, step] + wisp.logcumsumexp(reached - emitted[:, step], 1))
            reached = rows[-1] + stay[:, step]
        ends = wisp.arange(batch, device=known.device), logit_lengths.long() - 1, target_lengths.long()
        costs = -(wisp.stack(rows, 1)[ends] + stay[ends])
        (gradient,) = wisp.autograd.grad(costs.sum(), inner)
    if clamp > 0:
        gradient = gradient.clamp(-clamp, clamp)
    return costs.detach().to(logits.dtype), gradient.to(logits.dtype)
