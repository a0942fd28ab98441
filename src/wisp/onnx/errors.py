"""The errors of `torch.onnx`."""

__all__ = ["OnnxExporterError", "OnnxExporterWarning", "UnsupportedOperatorError"]


class OnnxExporterWarning(UserWarning):
    """Something in an export that is written otherwise than asked for."""


class OnnxExporterError(RuntimeError):
    """A model that cannot be exported."""


class UnsupportedOperatorError(OnnxExporterError):
    """A model that calls an operator which has no translation to ONNX."""
