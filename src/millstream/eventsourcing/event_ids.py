"""Ids of events: UUIDs of version 7, which rise with time."""

import os
import time

# An id has 76 random bits, of which the first two are replaced by those of the variant (RFC 9562).
ID_DIGITS = 19
IDS_DRAWN = 512
VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class EventIds:
    """Random bytes are drawn for many at once. Of one thread."""

    def __init__(self, ids_drawn: int = IDS_DRAWN) -> None:
        self._drawn_bytes = ids_drawn * ID_DIGITS // 2
        self._digits, self._at = "", 0
        self._moment, self._head = 0, ""

    def __call__(self) -> str:
        if self._at >= len(self._digits):
            self._digits, self._at = os.urandom(self._drawn_bytes).hex(), 0
        drawn = self._digits[self._at : self._at + ID_DIGITS]
        self._at += ID_DIGITS
        moment = time.time_ns() // 1_000_000
        if moment != self._moment:
            digits = f"{moment:012x}"
            self._moment, self._head = moment, f"{digits[:8]}-{digits[8:]}-7"
        variant = VARIANTS[drawn[0]]
        return f"{self._head}{drawn[1:4]}-{variant}{drawn[4:7]}-{drawn[7:]}"


def new_event_id() -> str:
    """One of any thread."""
    return EventIds(ids_drawn=2)()
