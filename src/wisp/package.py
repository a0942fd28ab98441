"""`torch.package`: archives of code are not written or read."""

__all__ = ["PackageExporter", "PackageImporter"]
_TEXT = "Wisp writes and reads no archives of code: save the state_dict with torch.save and ship the source beside it"


class PackageExporter:
    """Not available: raises NotImplementedError."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"PackageExporter: {_TEXT}")


class PackageImporter:
    """Not available: raises NotImplementedError."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"PackageImporter: {_TEXT}")


class PackageHeader:
    """Not available."""
