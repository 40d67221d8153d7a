"""Positions in PostgreSQL's log: a number of bytes, written as `16/B374D848`. Pure."""

import re

from millstream.base.errors import Corrupt

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
# What stands before the first record of a page, and of a file.
_PAGE_HEADER_BYTES = (24, 40)
PAGE_BYTES = 8192


class BadPosition(Corrupt):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no position of PostgreSQL's log, such as 16/B374D848")


def lsn_to_text(lsn: int) -> str:
    """Twice for every transaction: a format takes double the time of `hex`."""
    return f"{hex(lsn >> 32)[2:]}/{hex(lsn & 0xFFFFFFFF)[2:]}".upper()


def lsn_from_text(text: str) -> int:
    found = _LSN.fullmatch(text)
    if found is None:
        raise BadPosition(text)
    return int(found[1], 16) << 32 | int(found[2], 16)


def end_of_records(insert_lsn: int, *, page_bytes: int = PAGE_BYTES) -> int:
    """Where the last record ends, when the next one would begin at `insert_lsn`.

    They differ at the start of a page: the server counts its header to what comes, and an idle
    server's log would never reach a place behind it.
    """
    behind = insert_lsn % page_bytes
    return insert_lsn - behind if behind in _PAGE_HEADER_BYTES else insert_lsn
