"""`torch.ao.nn.qat`: layers that compute with weights as 8 bits would round them, and train through the rounding."""

import wisp
from wisp import nn

__all__ = ["Linear"]


class Linear(nn.Linear):
    """A linear layer whose weights are rounded to 256 steps in every forward pass; gradients pass the rounding.

    >>> import wisp
    >>> from wisp.ao.quantization import get_default_qconfig
    >>> layer = wisp.ao.nn.qat.Linear(3, 2, qconfig=get_default_qconfig())
    >>> layer(wisp.ones(1, 3)).shape
    torch.Size([1, 2])
    """

    def __init__(self, in_features, out_features, bias=True, qconfig=None, device=None, dtype=None):
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        if qconfig is None:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig

    def _rounded_weight(self):
        scale = (self.weight.detach().abs().amax() / 127.5).clamp_(min=wisp.finfo(self.weight.dtype).eps)
        return wisp.fake_quantize_per_tensor_affine(self.weight, scale, wisp.zeros((), dtype=wisp.int32), -128, 127)

    def forward(self, input):
        return nn.functional.linear(input, self._rounded_weight(), self.bias)
