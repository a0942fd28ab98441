"""The operators of torchaudio's library, which `torch.ops.load_library` of it needs not load."""

import doctest
import itertools

import pytest

import wisp

ops = wisp.ops.torchaudio


def test_its_library_is_taken_for_loaded():
    wisp.ops.load_library("/somewhere/torchaudio/lib/_torchaudio.abi3.so")
    wisp.ops.load_library("/somewhere/torchaudio/lib/libtorchaudio.so")
    assert wisp.ops._torchaudio.cuda_version() is None
    assert wisp.ops._torchaudio.is_align_available()
    with pytest.raises(OSError, match="do not load into Wisp"):
        wisp.ops.load_library("/somewhere/libmine.so")
    assert not hasattr(ops, "no_such_operator")


@pytest.mark.parametrize("order, time", [(2, 300), (0, 5), (3, 128), (2, 0)])
def test_recursive_filter(order, time):
    x = wisp.randn(2, 3, time, dtype=wisp.float64)
    a = wisp.cat([wisp.rand(3, order, dtype=wisp.float64) * 0.3, wisp.ones(3, 1, dtype=wisp.float64)], 1)
    y = wisp.zeros(2, 3, time + order, dtype=wisp.float64)
    expected = y.clone()
    ops._lfilter_core_loop(x, a, y)
    for t in range(time):
        expected[:, :, t + order] = x[:, :, t] - (a[:, :-1] * expected[:, :, t : t + order]).sum(-1)
    wisp.testing.assert_close(y, expected)


def test_overdrive():
    x, temp, last_in, last_out = wisp.randn(2, 200), wisp.randn(2, 200), wisp.randn(2), wisp.randn(2)
    y, expected = wisp.empty(2, 200), []
    ops._overdrive_core_loop(x, temp, last_in, last_out, y)
    for t in range(200):
        last_out = temp[:, t] - last_in + 0.995 * last_out
        last_in = temp[:, t]
        expected.append(x[:, t] * 0.5 + last_out * 0.75)
    wisp.testing.assert_close(y, wisp.stack(expected, 1))


@pytest.mark.parametrize("labels", [[1, 2], [1, 1], [2], [2, 2, 1]])
def test_alignment_is_the_most_probable_path(labels):
    log_probs = wisp.randn(1, 6, 3).log_softmax(-1)

    def reading(path):
        return [label for i, label in enumerate(path) if label and (i == 0 or label != path[i - 1])]

    path, scores = ops.forced_align(log_probs, wisp.tensor([labels]), wisp.tensor([6]), wisp.tensor([len(labels)]), 0)
    allowed = [p for p in itertools.product(range(3), repeat=6) if reading(p) == labels]
    best = max(allowed, key=lambda p: sum(log_probs[0, t, label].item() for t, label in enumerate(p)))
    assert path.tolist() == [list(best)]
    assert scores.shape == log_probs.shape
    with pytest.raises(RuntimeError, match="too long for CTC"):
        ops.forced_align(log_probs[:, :1], wisp.tensor([[1, 1]]), wisp.tensor([1]), wisp.tensor([2]), 0)
    with pytest.raises(RuntimeError, match="log_probs must be float64, float32 or float16"):
        ops.forced_align(log_probs.long(), wisp.tensor([labels]), wisp.tensor([6]), wisp.tensor([len(labels)]), 0)


def transducer_loss(logits, labels, steps, blank):
    """Over all orders in which labels and blanks, one a step and one at the end, can come."""
    log_probs = logits.log_softmax(-1)
    ways = []
    for places in itertools.combinations(range(steps - 1 + len(labels)), len(labels)):
        t = u = 0
        total = 0.0
        for i in range(steps - 1 + len(labels)):
            if i in places:
                total, u = total + log_probs[t, u, labels[u]], u + 1
            else:
                total, t = total + log_probs[t, u, blank], t + 1
        ways.append(total + log_probs[t, u, blank])
    return -wisp.stack(ways).logsumexp(0)


def test_transducer_loss():
    logits = wisp.randn(2, 4, 3, 5, dtype=wisp.float32)
    targets = wisp.tensor([[1, 2], [3, 0]], dtype=wisp.int32)
    lengths, target_lengths = wisp.tensor([4, 3], dtype=wisp.int32), wisp.tensor([2, 1], dtype=wisp.int32)
    loss, gradient = ops.rnnt_loss_forward(logits, targets, lengths, target_lengths, 4, -1.0, True)
    leaf = logits.clone().requires_grad_()
    expected = wisp.stack([transducer_loss(leaf[0], [1, 2], 4, 4), transducer_loss(leaf[1], [3], 3, 4)])
    wisp.testing.assert_close(loss, expected.detach())
    wisp.testing.assert_close(gradient, wisp.autograd.grad(expected.sum(), leaf)[0])
    again, clamped = ops.rnnt_loss_forward(logits.log_softmax(-1), targets, lengths, target_lengths, 4, 0.01, False)
    wisp.testing.assert_close(again, loss)
    assert clamped.abs().max() <= 0.01


def test_examples():
    from wisp._compat import audio

    result = doctest.testmod(audio)
    assert result.attempted and not result.failed
