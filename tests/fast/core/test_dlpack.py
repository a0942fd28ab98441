"""Tensors for other libraries: what is refused, and with which error, and what is taken."""

import pytest

import wisp
from wisp.utils.dlpack import DLDeviceType, from_dlpack


def test_what_dlpack_has_no_form_for_is_a_buffer_error():
    x = wisp.ones(2)
    for export, text in (
        (lambda: x.to_sparse().__dlpack__(), "layout other than torch.strided"),
        (lambda: wisp.quantize_per_tensor(x, 0.1, 10, wisp.qint8).__dlpack__(), "not supported by dlpack"),
        (lambda: x.__dlpack__(max_version=(1, 0), dl_device=(DLDeviceType.kDLHexagon, 0)), "Unsupported device_type: 16"),
        (lambda: x.clone().requires_grad_().__dlpack__(), "require gradient"),
    ):
        with pytest.raises(BufferError, match=text):
            export()


def test_main_memory_has_no_streams():
    x = wisp.ones(2)
    for stream in (0, 1):
        with pytest.raises(AssertionError, match="stream should be None on cpu"):
            x.__dlpack__(stream=stream)
    assert wisp.equal(from_dlpack(x.__dlpack__(stream=-1)), x)


def test_a_tensor_is_made_from_what_speaks_dlpack_alone():
    class Speaks:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = wisp.arange(6.0).reshape(2, 3)
    made = wisp.tensor(Speaks(x))
    assert made.tolist() == x.tolist() and made.data_ptr() != x.data_ptr()
    assert wisp.tensor(Speaks(x), dtype=wisp.int64).dtype is wisp.int64
