"""Until when records are held: a heap of what may run out next.

It is not told when a lock ends early. So an entry says that there may be something to do, and the
one who takes it looks at the records themselves.
"""

import heapq
from collections.abc import Iterable

from millstream.base.offsets import OffsetRange

# Above so many, entries whose locks were renewed or have ended are looked for.
ENTRIES_MIN = 1_000


class LockDeadlines:
    """The earliest first; an entry for each time that records were handed out or renewed.

    Who renews again and again would fill it: its owner asks `is_crowded`, and calls `reset`.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []  # until_ms, start, end

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def put(self, until_ms: int, offsets: OffsetRange) -> None:
        heapq.heappush(self._heap, (until_ms, offsets.start, offsets.end))

    def is_crowded(self, locks: int) -> bool:
        """Whether most entries are of locks that are no more, when there are so many locks."""
        return len(self) > max(ENTRIES_MIN, 2 * locks)

    def reset(self, locks: Iterable[tuple[int, OffsetRange]]) -> None:
        """These are all that there are."""
        self._heap = [(until_ms, offsets.start, offsets.end) for until_ms, offsets in locks]
        heapq.heapify(self._heap)

    def take_due(self, now_ms: int) -> list[OffsetRange]:
        due: list[OffsetRange] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, start, end = heapq.heappop(self._heap)
            due.append(OffsetRange(start=start, end=end))
        return due

    def drop_before(self, offset: int) -> None:
        """Records below it are done. Only the first entries are looked at: most end in order."""
        while self._heap and self._heap[0][2] <= offset:
            heapq.heappop(self._heap)
