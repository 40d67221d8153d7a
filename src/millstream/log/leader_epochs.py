"""Leader epochs: which incarnation of the log's owner wrote which offsets (KIP-101).

Each start of the broker is a new epoch. A client that remembers the epoch of its last record can
ask where that epoch ended, and so notices records that a power cut took back. Pure.
"""

import itertools
from dataclasses import dataclass, field

from millstream.base.errors import Corrupt
from millstream.log.config import INT64_MAX

# The file `leader-epoch-checkpoint`, text, in Kafka's format: a version line "0", a line with the
# number of entries, then "epoch start_offset" per line, both strictly increasing.
VERSION = "0"


@dataclass(slots=True)
class LeaderEpochs:
    """Pairs (epoch, start offset), both increasing. Owned by one PartitionLog."""

    entries: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` writes from `start_offset` on; True if that is news."""
        if self.last >= epoch:
            return False
        self.truncate_to(start_offset)
        self.entries.append((epoch, start_offset))
        return True

    def truncate_to(self, end_offset: int) -> None:
        """Forget epochs that start at or after `end_offset`: their records are gone."""
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()

    def end_of(self, epoch: int, *, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch <= `epoch`, and the offset where it ended. (-1, -1): unknown."""
        known, end_offset = -1, log_end_offset
        for entry_epoch, start_offset in reversed(self.entries):
            if entry_epoch <= epoch:
                known = entry_epoch
                break
            end_offset = start_offset
        return (known, end_offset) if known >= 0 else (-1, -1)

    def at(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if unknown."""
        return self.run_at(offset)[0]

    def run_at(self, offset: int) -> tuple[int, int]:
        """The epoch that wrote `offset` (-1 if unknown), and the offset where it ended."""
        end_offset = INT64_MAX
        for epoch, start_offset in reversed(self.entries):
            if start_offset <= offset:
                return epoch, end_offset
            end_offset = start_offset
        return -1, end_offset

    @property
    def last(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def to_text(self) -> str:
        lines = [VERSION, str(len(self.entries))]
        lines += [f"{epoch} {start_offset}" for epoch, start_offset in self.entries]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "LeaderEpochs":
        try:
            _version, _count, *rows = text.split("\n")[:-1]
            entries = [(int(epoch), int(start)) for epoch, start in (row.split() for row in rows)]
        except ValueError as error:
            raise Corrupt(f"not a list of leader epochs ({error})") from error
        epochs = cls(entries)
        # Written back it must be the same: that covers the version, the count and odd spellings.
        if epochs.to_text() != text or not epochs.is_increasing:
            raise Corrupt("not a list of leader epochs in order")
        return epochs

    @property
    def is_increasing(self) -> bool:
        pairs = itertools.pairwise(self.entries)
        return all(one[0] < two[0] and one[1] < two[1] for one, two in pairs)
