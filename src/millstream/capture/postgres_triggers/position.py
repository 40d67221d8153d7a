"""Positions of a capture by triggers: snapshots, in the order in which they were taken. Pure.

A snapshot sees all transactions that ended before it was taken. Two of one server are ordered: the
later one has the higher `xmax`, or the same and fewer transactions that still run. So these two
numbers name it:

    755-2        all that is seen by the snapshot with xmax 755 and 2 running transactions
    755-2.40     of what is new in it, the transactions whose last change is number 40 or less
"""

import math
import re
from typing import Final, NamedTuple

from millstream.base.errors import Corrupt
from millstream.capture.postgres.loading import Snapshot

_TEXT: Final = re.compile(r"(\d+)-(\d+)(?:\.(\d+))?")


class BadPosition(Corrupt):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no position of a capture by triggers, such as 755-2.40")


class Position(NamedTuple):
    """`last_seq` is None where all that is new in the snapshot was handed over."""

    xmax: int
    running: int
    last_seq: int | None = None

    @classmethod
    def from_text(cls, text: str) -> "Position":
        found = _TEXT.fullmatch(text)
        if found is None:
            raise BadPosition(text)
        xmax, running, last_seq = found.groups()
        return cls(int(xmax), int(running), None if last_seq is None else int(last_seq))

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Position":
        return cls(snapshot.xmax, len(snapshot.running))

    def __str__(self) -> str:
        end = "" if self.last_seq is None else f".{self.last_seq}"
        return f"{self.xmax}-{self.running}{end}"

    def is_past(self, other: "Position") -> bool:
        """Whether this is the other one, or after it."""
        return self._order() >= other._order()

    def _order(self) -> tuple[int, int, float]:
        last_seq = math.inf if self.last_seq is None else self.last_seq
        return self.xmax, -self.running, last_seq
