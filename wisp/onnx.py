"""`torch.onnx`: Wisp writes no ONNX files, and says so."""
import enum as _enum

__all__ = ["OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export"]


class TrainingMode(_enum.Enum):
    """The mode in which a model would be exported."""

    EVAL, PRESERVE, TRAINING = 0, 1, 2


class OperatorExportTypes(_enum.Enum):
    """How operators would be exported."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = 0, 1, 2, 3


def is_in_onnx_export():
    """False: nothing is being exported."""
    return False


def export(model, args=(), f=None, **options):
    """Not available: raises NotImplementedError with what to do instead."""
    raise NotImplementedError("onnx.export: Wisp writes no ONNX files. Save the weights with torch.save(model.state_dict(), file), which "
                              "PyTorch reads, and export from there.")


dynamo_export = _export = export
