"""What a checkpoint says of a job's batches: whose they are, and where each one has read to.

Spark writes both before a batch runs. Read on the driver, while the batch is written.
"""

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from millstream.base.errors import Corrupt
from millstream.base.ports import BatchReceipt
from millstream.base.positions import Positions
from millstream.processing.reading.offset_log import (
    COMMITS,
    OFFSETS,
    batch_numbers,
    ends_in,
    local_path,
)

METADATA = "metadata"
PARTITIONS = "spark.sql.shuffle.partitions"


class CheckpointUnreadable(Corrupt):
    def __init__(self, *, checkpoint: str, problem: str) -> None:
        super().__init__(f"The checkpoint {checkpoint} cannot be read ({problem})")
        self.checkpoint, self.problem = checkpoint, problem


class BatchLog:
    """Of the checkpoint that a job runs with."""

    def __init__(self, checkpoint: str | Path) -> None:
        self.checkpoint = str(checkpoint)

    def last_batch(self) -> int:
        """The last batch that Spark has planned; -1 if there is none."""
        return max(batch_numbers(self.checkpoint), default=-1)

    def last_done(self) -> int:
        """The last batch whose output was committed, as far as Spark has noted it; -1 if there is
        none."""
        return max(batch_numbers(self.checkpoint, COMMITS), default=-1)

    def has_begun(self) -> bool:
        """Whether Spark has given the checkpoint its name."""
        try:
            return bool(self.query)
        except CheckpointUnreadable:
            return False

    @cached_property
    def query(self) -> str:
        """Spark's name for the checkpoint: a new one has a new name."""
        return str(json.loads(self._text(METADATA))["id"])

    def positions(self, batch: int) -> Positions:
        """By topic and partition. Two sources may read one topic: the one that is behind counts."""
        found: dict[str, dict[int, int]] = {}
        for end in ends_in(self._text(OFFSETS, str(batch))):
            for topic, offsets in _offsets_in(end):
                kept = found.setdefault(topic, offsets)
                found[topic] = {at: min(kept.get(at, 0), offsets.get(at, 0)) for at in kept}
        return found

    def receipt(self, batch: int, *, job: str, epoch: int) -> BatchReceipt:
        """Of a batch that the job is about to write."""
        before = self.before(batch)
        return BatchReceipt(
            job=job,
            epoch=epoch,
            query=self.query,
            batch=batch,
            positions=self.positions(batch),
            start=self.positions(before) if before >= 0 else {},
            before=before,
        )

    def before(self, batch: int) -> int:
        """The last number before this one that is a batch: moving the state takes a number too."""
        number = batch - 1
        while number > 0 and self._is_move(number):
            number -= 1
        return number

    def _is_move(self, number: int) -> bool:
        """`millstream state repartition` repeats the entry of the batch before, of its moment and
        with its ends, but for the number of partitions."""
        try:
            entry, earlier = (self._text(OFFSETS, str(one)) for one in (number, number - 1))
        except CheckpointUnreadable:  # Spark has removed it: it was long ago
            return False
        facts, others = (json.loads(text.splitlines()[1]) for text in (entry, earlier))
        is_same_moment = facts["batchTimestampMs"] == others["batchTimestampMs"]
        has_moved = facts["conf"].get(PARTITIONS) != others["conf"].get(PARTITIONS)
        return is_same_moment and has_moved and ends_in(entry) == ends_in(earlier)

    def records_in(self, batch: int) -> int:
        """About how many records the batch reads: its offsets since the batch before."""
        before = self.positions(batch - 1) if batch > 0 else {}
        return sum(
            max(0, offset - before.get(topic, {}).get(number, 0))
            for topic, offsets in self.positions(batch).items()
            for number, offset in offsets.items()
        )

    def _text(self, *names: str) -> str:
        try:
            return file_text(self.checkpoint, *names)
        except OSError as error:
            raise CheckpointUnreadable(checkpoint=self.checkpoint, problem=str(error)) from error


def _offsets_in(end: dict[str, Any]) -> list[tuple[str, dict[int, int]]]:
    """What is a position in topics; sources of others have their own."""
    return [
        (topic, {int(number): int(offset) for number, offset in at["offsets"].items()})
        for topic, at in end.items()
        if isinstance(at, dict) and "offsets" in at
    ]


def file_text(checkpoint: str, *names: str) -> str:
    """A file of a checkpoint, wherever that is."""
    if (local := local_path(checkpoint)) is not None:
        return Path(os.path.join(local, *names)).read_text(encoding="utf-8")
    from pyarrow import fs

    store, path = fs.FileSystem.from_uri(checkpoint)
    with store.open_input_stream("/".join((path, *names))) as stream:
        return bytes(stream.read()).decode("utf-8")
