"""Every byte under some directories, as it is and as it is when decompressed, and what is in them.

Segments of the log, Parquet files and Spark's zip and lz4 files are unpacked. A file that cannot be
unpacked is not passed over: who searches is told.
"""

import base64
import contextlib
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import cramjam
import pyarrow.parquet as pq

from millstream.log.record_batch import HEADER_BYTES, decompress, read_header

LOOKS_MAX = 20
SEGMENT = re.compile(r"\d{20}\.log")
LZ4_BLOCK = b"LZ4Block"  # how lz4-java frames what Spark writes
LZ4_FRAME_HEAD_BYTES = len(LZ4_BLOCK) + 13
LZ4_RAW, LZ4_COMPRESSED = 0x10, 0x20


def texts_in(*roots: Path) -> Iterator[tuple[str, bytes]]:
    """Where, and the bytes that are there."""
    for root in roots:
        for file, data in files_in(root):
            yield str(file), data
            for number, inside in enumerate(unpacked(file.name, data)):
                yield f"{file}, unpacked {number}", inside


def files_in(root: Path) -> list[tuple[Path, bytes]]:
    """Of one moment: where a file goes meanwhile, what was in it may be in one that was read."""
    for _ in range(LOOKS_MAX):
        with contextlib.suppress(FileNotFoundError):
            files = sorted(path for path in root.rglob("*") if path.is_file())
            return [(file, file.read_bytes()) for file in files]
    raise AssertionError(f"files under {root} came and went in each of {LOOKS_MAX} looks")


def unpacked(name: str, data: bytes) -> Iterator[bytes]:
    if SEGMENT.fullmatch(name):
        yield from batches_in(data)
    elif name.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(data))
        yield "\n".join(str(row) for row in table.to_pylist()).encode()
    elif data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.namelist():
                inside = archive.read(entry)
                yield inside
                yield from unpacked(entry, inside)
    elif data[: len(LZ4_BLOCK)] == LZ4_BLOCK:
        yield b"".join(lz4_blocks_in(data))


def batches_in(segment: bytes) -> Iterator[bytes]:
    """The records of each batch, decompressed. A segment ends where no batch follows."""
    position = 0
    while position + HEADER_BYTES <= len(segment):
        header = read_header(segment, position)
        if header.batch_length <= 0:
            return
        payload = memoryview(segment)[position + HEADER_BYTES : position + header.size_bytes]
        yield bytes(decompress(header.codec, payload))
        position += header.size_bytes


def lz4_blocks_in(data: bytes) -> Iterator[bytes]:
    """Each: magic, one byte for the method, sizes packed and unpacked, a check, the bytes."""
    position = 0
    while position + LZ4_FRAME_HEAD_BYTES <= len(data):
        head = data[position + len(LZ4_BLOCK) : position + LZ4_FRAME_HEAD_BYTES]
        size = int.from_bytes(head[1:5], "little")
        unpacked_size = int.from_bytes(head[5:9], "little")
        start = position + LZ4_FRAME_HEAD_BYTES
        block = data[start : start + size]
        if head[0] & 0xF0 == LZ4_RAW:
            yield block
        elif size:
            yield bytes(cramjam.lz4.decompress_block(block, output_len=unpacked_size))
        position = start + size


def spellings(text: str) -> list[bytes]:
    """A text as it may stand in a file: in UTF-8 and UTF-16, in hexadecimal, in base64 at any
    place of a longer text."""
    plain = text.encode()
    coded = [
        base64.b64encode(bytes(shift) + plain)[4 * (shift > 0) : -4].strip(b"=")
        for shift in range(3)
    ]
    return [plain, text.encode("utf-16-le"), plain.hex().encode(), *(one for one in coded if one)]


def places_of(text: str, where: Iterable[tuple[str, bytes]]) -> list[str]:
    """Where a text is found."""
    wanted = spellings(text)
    return [place for place, data in where if any(one in data for one in wanted)]
