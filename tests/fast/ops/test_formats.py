"""Channels-last operands: results keep their order in memory, and have the values of contiguous ones."""

import pytest

import wisp
import wisp.nn.functional as F

OPERATORS = {
    "conv2d": lambda x: F.conv2d(x, wisp.ones(6, 4, 3, 3) / 9),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, wisp.ones(4, 6, 2, 2)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_avg_pool2d to one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "lanczos": lambda x: F.interpolate(x, size=(3, 3), mode="lanczos", antialias=True),
    "pad": lambda x: F.pad(x, (1, 2, 3, 4)),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "cat": lambda x: wisp.cat([x, x + 1], 1),
    "dropout": lambda x: (wisp.manual_seed(0), F.dropout(x, 0.5))[1],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_channels_last_stays(name):
    wisp.manual_seed(1)
    plain = wisp.randn(2, 4, 6, 6)
    last = plain.to(memory_format=wisp.channels_last).requires_grad_()
    plain.requires_grad_()
    expected, actual = OPERATORS[name](plain), OPERATORS[name](last)
    assert actual.is_contiguous(memory_format=wisp.channels_last) and expected.is_contiguous()
    batch, channels, height, width = actual.shape
    assert actual.stride() == (channels * height * width, 1, channels * width, channels)
    assert wisp.allclose(actual, expected, atol=1e-5)
    weight = wisp.randn(expected.shape)
    (expected * weight).sum().backward()
    (actual * weight).sum().backward()
    assert wisp.allclose(last.grad, plain.grad, atol=1e-4) and last.grad.stride() == last.stride()


def test_volumes():
    x = wisp.randn(2, 3, 4, 4, 4).to(memory_format=wisp.channels_last_3d)
    for result in (F.max_pool3d(x, 2), F.conv3d(x, wisp.ones(2, 3, 1, 1, 1)), F.interpolate(x, scale_factor=2)):
        assert result.is_contiguous(memory_format=wisp.channels_last_3d)
    values, indices = F.max_pool3d(x[0], 2, return_indices=True)
    for part in (values, indices):
        assert part.unsqueeze(0).is_contiguous(memory_format=wisp.channels_last_3d)


def test_sizes_of_one_leave_the_order_to_the_strides():
    x = wisp.randn(2, 3, 1, 1).to(memory_format=wisp.channels_last)
    assert F.pad(x, (1, 1, 1, 1)).is_contiguous(memory_format=wisp.channels_last)
    assert F.pad(wisp.randn(2, 3, 1, 1), (1, 1, 1, 1)).is_contiguous()
    assert wisp.ones(2, 3, 4, 4).resize_(2, 3, 2, 2, memory_format=wisp.channels_last).stride() == (12, 1, 6, 3)
