"""Waits until something can be read. By poll: select does not know files above number 1,023."""

import select
from typing import IO, Any


def is_readable(file: IO[Any], within_s: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(within_s * 1_000))
