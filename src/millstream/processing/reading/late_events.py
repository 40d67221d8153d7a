"""What becomes of late events: quarantined in `<topic>.late`, and counted, once each.

A task that met late events writes one record to the compacted topic `_late.<job>`, under a key
that names its range (docs/formats/late_events.md). A batch that Spark repeats has the same ranges
and the same watermark: it writes the same record again, and the count stays exact. Judges nothing
(`lateness.py`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from millstream.base.declared import LATE_SUFFIX
from millstream.base.offsets import OffsetRange
from millstream.processing.kafka_clients import TopicNotFound
from millstream.processing.outbox import Outbox
from millstream.processing.reading.dead_letters import send_letters
from millstream.processing.reading.last_use import BY_EVENT, Uses
from millstream.processing.reading.lateness import Fate, Judged
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from millstream.values.decoder import Bad

COUNTS_PREFIX = "_late."
UNNAMED_JOB = "unnamed"
COUNTS_CONFIG = {"cleanup.policy": "compact"}

# By source of a job, and by what became of them.
LateCounts = Mapping[str, Counter[Fate]]


def counts_topic(job: str) -> str:
    return f"{COUNTS_PREFIX}{job or UNNAMED_JOB}"


class LateEvents:
    """The late events of one task's range, in a batch of this watermark."""

    def __init__(
        self,
        read: TopicRead,
        part: Partition,
        within: OffsetRange,
        *,
        watermark_ms: int | None,
        uses: Uses = BY_EVENT,
    ) -> None:
        self._read, self._part, self._within = read, part, within
        self.watermark_ms, self.uses = watermark_ms, uses
        self._counts: Counter[Fate] = Counter()

    def take(self, records: Sequence[Message], judged: Judged) -> None:
        """Returns when those that are quarantined are on disk."""
        self._counts += judged.counts()
        reason = f"late: no operator of the job can use it, the watermark is {self.watermark_ms} ms"
        letters = [Bad(row, reason) for row in judged.late.get(Fate.QUARANTINED, ())]
        if letters:
            send_letters(self._read, records, letters, suffix=LATE_SUFFIX)

    def count(self) -> None:
        """When all of the range is read. Without late events there is nothing to write."""
        if not self._counts:
            return
        key = {
            "run": self._read.run,
            "source": self._read.source,
            "topic": self._part.topic,
            "partition": self._part.number,
            "start": self._within.start,
        }
        counts = {fate.value: count for fate, count in self._counts.items()}
        facts = {"end": self._within.end, "watermark_ms": self.watermark_ms} | counts
        outbox = Outbox(self._read.brokers, self._read.client)
        outbox.send(
            counts_topic(self._read.job),
            key=_json(key),
            value=_json(facts),
            topic_config=COUNTS_CONFIG,
        )
        outbox.close(doing="count late events")


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()


class LateTally:
    """How many events of a job were late. Each call reads only what was written since the last."""

    def __init__(self, brokers: str, client: Mapping[str, str], *, job: str) -> None:
        self._read = TopicRead(brokers=brokers, topics=(counts_topic(job),), client=client)
        self._known: dict[bytes, bytes] = {}  # the last value of each key
        self._totals: dict[tuple[str, str], Counter[Fate]] = {}  # of these, by run and source
        self._reached: dict[Partition, int] = {}

    def counts(self, *, run: str | None = None) -> LateCounts:
        """By source; of one run, or of all that the job ever had."""
        self._catch_up()
        found: dict[str, Counter[Fate]] = {}
        for (of_run, source), late in self._totals.items():
            if run in (None, of_run):
                found.setdefault(source, Counter()).update(+late)
        return found

    def _catch_up(self) -> None:
        try:
            ranges = batch_ranges(self._read)
        except TopicNotFound:  # nothing was late so far, or since it was deleted
            self._forget()
            return
        if any(within.end < self._reached.get(part, 0) for part, within in ranges):
            self._forget()  # made anew
        reader = RangeReader(self._read)
        for part, within in ranges:
            start = max(within.start, self._reached.get(part, 0))
            for records in reader.read(part, OffsetRange(start=start, end=within.end)):
                for record in records:
                    self._take(record.key() or b"", record.value() or b"{}")
            self._reached[part] = within.end

    def _take(self, key: bytes, value: bytes) -> None:
        """In the place of what was known of this range."""
        named = json.loads(key)
        total = self._totals.setdefault((named["run"], named["source"]), Counter())
        total.subtract(_late_in(self._known.get(key, b"{}")))
        total.update(_late_in(value))
        self._known[key] = value

    def _forget(self) -> None:
        self._known.clear()
        self._totals.clear()
        self._reached.clear()


def _late_in(value: bytes) -> Counter[Fate]:
    facts = json.loads(value)
    return Counter({fate: facts[fate] for fate in Fate if fate in facts})


def count_late(
    brokers: str, client: Mapping[str, str], *, job: str, run: str | None = None
) -> LateCounts:
    """How many events of a job were late, by source and by what became of them."""
    return LateTally(brokers, client, job=job).counts(run=run)
