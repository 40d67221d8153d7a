"""The zip files in which Spark keeps what RocksDB had at a batch, of a copy that anybody made.

Their entry `metadata` says by which name each file is put into RocksDB's directory, and Spark puts
it there whatever the name: `../../.profile` too. Here such names are refused. An archive is written
anew with what was checked, as Spark goes from entry to entry where we go by the table at the end.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from millstream.base.quantity import MIB

SUFFIX: Final = ".zip"
METADATA: Final = "metadata"
NAMES_END: Final = "FileName"  # localFileName, dfsSstFileName, dfsLogFileName
PLAIN: Final = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,255}")
# What Python says of bytes that are no archive, or not one that it can read.
ZIP_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
)
# RocksDB's manifest and options; its tables are beside the archive.
BYTES_MAX: Final = 256 * MIB


class BadArchive(ValueError):
    """Not one of Spark's."""


def checked_entries(path: Path) -> dict[str, bytes]:
    """Raises BadArchive."""
    try:
        with zipfile.ZipFile(path) as archive:
            there = archive.infolist()
            if sum(one.file_size for one in there) > BYTES_MAX:
                raise BadArchive(f"it has more than {BYTES_MAX:,} bytes")
            found = {one.filename: archive.read(one) for one in there}
    except ZIP_ERRORS as error:
        raise BadArchive(f"it is no archive of Spark's: {error}") from None
    if len(found) < len(there):
        raise BadArchive("it has two entries of one name")
    for name in found:
        _require_plain(name)
    return found | {METADATA: _checked_metadata(found.get(METADATA, b""))}


def write_anew(path: Path) -> None:
    """With what was checked and nothing else; Hadoop's checksum of the former one goes."""
    entries = checked_entries(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _checked_metadata(content: bytes) -> bytes:
    """The version in its first line, then JSON: as it was read here."""
    version, _, text = content.partition(b"\n")
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        raise BadArchive(f"its {METADATA} cannot be read") from None
    for name in _names_in(facts):
        _require_plain(name)
    return version + b"\n" + json.dumps(facts).encode()


def _names_in(found: Any) -> Iterator[Any]:
    match found:
        case dict():
            for key, value in found.items():
                if key.endswith(NAMES_END):
                    yield value
                yield from _names_in(value)
        case list():
            for one in found:
                yield from _names_in(one)


def _require_plain(name: Any) -> None:
    if not isinstance(name, str) or not PLAIN.fullmatch(name):
        raise BadArchive(f"{name!r} is no name of a file of RocksDB")
