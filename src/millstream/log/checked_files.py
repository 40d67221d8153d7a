"""Small files that must not be wrong: kept as Kafka reads them, and once more with a checksum.

Kafka's text files have no room for a checksum, and a flipped bit in a digit makes another good
number: an offset that hides records, or brings deleted ones back. So each has a copy beside it
that can prove itself. The copy is written first; where the two differ, the copy counts.
"""

import logging
from pathlib import Path

from crc32c import crc32c

from millstream.base.disk import Disk, read_file, replace_file

logger = logging.getLogger(__name__)

# The file `<name>.checked`:
#
#   crc       uint32   big-endian, CRC-32C of all that follows
#   content            what `<name>` holds, or is about to hold
CRC_BYTES = 4
CHECKED_SUFFIX = ".checked"


def save_checked(disk: Disk, path: Path, content: bytes) -> None:
    """Replace the file and its copy: after a crash `load_checked` gives the old or the new one."""
    replace_file(disk, copy_of(path), checked_copy(content))
    replace_file(disk, path, content)


def checked_copy(content: bytes) -> bytes:
    return crc32c(content).to_bytes(CRC_BYTES, "big") + content


def load_checked(disk: Disk, path: Path) -> bytes | None:
    """The content, from whichever of the two is sound; None if there is neither."""
    content = read_file(disk, path)
    copy = read_file(disk, copy_of(path))
    if copy is None:  # Kafka wrote the directory, or somebody mended it by hand
        return content
    proven = copy[CRC_BYTES:]
    if int.from_bytes(copy[:CRC_BYTES], "big") != crc32c(proven):
        logger.error(
            "%s: damaged somewhere in bytes 0 to %d (checksum); %s is used in its place",
            copy_of(path), len(copy), path.name,
        )  # fmt: skip
        return content
    if (content or b"") != proven:  # an empty list may have the copy alone
        logger.error(
            "%s: differs from its checked copy from byte %d on (damage, or a crash between "
            "writing the two); the copy is used",
            path, _first_difference(content or b"", proven),
        )  # fmt: skip
    return proven


def copy_of(path: Path) -> Path:
    return path.with_name(path.name + CHECKED_SUFFIX)


def _first_difference(one: bytes, two: bytes) -> int:
    same = (number for number, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return next(same, min(len(one), len(two)))
