"""A writer of uncompressed zip archives with aligned entries.

Python's zipfile computes checksums in the thread that writes; here other threads do it while the file is written, which
halves the time to save a large model.
"""

import struct
from concurrent.futures import ThreadPoolExecutor

from wisp import _core

_LARGE = 0xFFFFFFFF
_SMALL = 1 << 16  # bytes whose checksum takes less time than to ask a thread for it
_DATE = 0x21  # 1980-01-01: the same content makes the same file


def _zip64(*values):
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""


def write_archive(file, entries, alignment, checksums=True):
    """Write `entries`, a list of (name, bytes-like), into a file object that only needs `write`. Without `checksums` they are 0."""
    sizes = [memoryview(content).nbytes for _, content in entries]
    with ThreadPoolExecutor(2) as pool:
        sums = [checksums and size > _SMALL and pool.submit(_core._crc32, content) for (_, content), size in zip(entries, sizes)]
        directory, position = [], 0
        for (name, content), size, checksum in zip(entries, sizes, sums):
            name = name.encode()
            large = size >= _LARGE
            # the checksum follows the data (flag 8), as it may not be known yet
            extra = _zip64(0, 0) if large else b""
            padding = -(position + 30 + len(name) + len(extra) + 4) % alignment
            extra += struct.pack("<HH", 0x4246, padding) + b"Z" * padding
            version = 45 if large else 20
            header = (
                struct.pack("<4s5H3I2H", b"PK\3\4", version, 0x808, 0, 0, _DATE, 0, _LARGE * large, _LARGE * large, len(name), len(extra))
                + name
                + extra
            )
            file.write(header)
            file.write(content)
            total = checksum.result() if checksum else _core._crc32(content) if checksums else 0
            file.write(struct.pack("<4sI2Q" if large else "<4s3I", b"PK\7\10", total, size, size))
            directory.append((name, total, size, position))
            position += len(header) + size + (24 if large else 16)
    start = position
    for name, total, size, offset in directory:
        wide = ([size, size] if size >= _LARGE else []) + ([offset] if offset >= _LARGE else [])
        extra, short = _zip64(*wide), min(size, _LARGE)
        entry = (
            struct.pack(
                "<4s6H3I5H2I",
                b"PK\1\2",
                45 if wide else 20,
                45 if wide else 20,
                0x808,
                0,
                0,
                _DATE,
                total,
                short,
                short,
                len(name),
                len(extra),
                0,
                0,
                0,
                0,
                min(offset, _LARGE),
            )
            + name
            + extra
        )
        file.write(entry)
        position += len(entry)
    count, length = len(directory), position - start
    if count >= 0xFFFF or start >= _LARGE:
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, position, 1))
    file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), min(length, _LARGE), min(start, _LARGE), 0))
