"""The receipts of a job in a topic of its own, `_receipts.<job>`: compacted, kept for ever.

    partition 0      claims: which run of the job may write
    partition 1 + n  receipts of task n: what it has written last

A partition has one writer, whose transactional id it opens first, so that nothing is in doubt when
it looks: its last committed record says all, and is found at its end.
"""

import time
from dataclasses import replace

from confluent_kafka import KafkaException

from millstream.base.errors import Retryable
from millstream.base.librdkafka import admin_api
from millstream.base.offsets import OffsetRange
from millstream.base.topic_terms import TopicTerms
from millstream.processing.kafka_clients import (
    TopicNotFound,
    admin_client,
    answer_in,
    check_existing,
    code_of,
    error_from,
    make_topic,
)
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.topic_offsets import TopicOffsets
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.writing.receipts import Claim, Receipt, decode_claim, decode_receipt
from millstream.processing.writing.topic_write import TopicWrite

CLAIMS = 0
FIRST_TASK = 1
# A receipt and its marker are two offsets; what was aborted lies between.
TAIL_OFFSETS = 16
OPEN_SECONDS_MAX = 20.0
# A short log is looked through quickly; compaction keeps it so.
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
HOLDS = "receipts, and a repeated batch would be written twice"


class ReceiptInDoubt(Retryable):
    def __init__(self, *, partition: Partition) -> None:
        super().__init__(f"{partition}: another run of the job is just claiming it. Try again")
        self.partition = partition


def receipts_topic(job: str) -> str:
    return f"_receipts.{job}"


class ReceiptTopic:
    """Finds claims and receipts, and makes their topic."""

    def __init__(self, write: TopicWrite) -> None:
        self._job = write.job
        self.name = receipts_topic(write.job)
        read = TopicRead(brokers=write.brokers, topics=(self.name,), client=write.client)
        self._read = read
        self._stable = TopicOffsets(read)
        self._written = TopicOffsets(replace(read, read_committed=False))
        self._reader = RangeReader(read)

    def make(self, *, tasks: int) -> None:
        """Before the first batch: the topic exists, and keeps what is written there."""
        terms = TopicTerms(name=self.name, config=CONFIG, holds=HOLDS)
        check_existing(self._read.brokers, self._read.client, [terms])
        self.grow(tasks=tasks)

    def grow(self, *, tasks: int) -> None:
        """Make the topic, or give it more partitions: one for each task."""
        wanted = FIRST_TASK + tasks
        try:
            found = len(self._stable.available()[self.name].partitions)
        except TopicNotFound:
            brokers, client = self._read.brokers, self._read.client
            make_topic(brokers, client, self.name, partitions=wanted, config=CONFIG, holds=HOLDS)
            return
        if found < wanted:
            self._grow(wanted)

    def tasks(self) -> range:
        """The numbers of the tasks that have a partition."""
        return range(len(self._stable.available()[self.name].partitions) - FIRST_TASK)

    def last_claim(self) -> Claim | None:
        value = self._last_value(CLAIMS)
        return None if value is None else decode_claim(self._job, value)

    def last_receipt(self, task: int) -> Receipt | None:
        value = self._last_value(FIRST_TASK + task)
        return None if value is None else decode_receipt(self._job, value)

    def _grow(self, wanted: int) -> None:
        grown = admin_api().NewPartitions(self.name, wanted)
        admin = admin_client(self._read.brokers, self._read.client)
        answers = admin.create_partitions([grown])
        doing = f"add partitions to {self.name}"
        try:
            answer_in(answers[self.name], doing=doing, brokers=self._read.brokers)
        except KafkaException as error:
            if code_of(error) != "INVALID_PARTITIONS":  # another task was quicker
                raise error_from(error.args[0], doing=doing, brokers=self._read.brokers) from None

    def _last_value(self, number: int) -> bytes | None:
        part = Partition(self.name, number)
        within = self._decided(part)
        length = TAIL_OFFSETS
        while True:
            tail = OffsetRange(start=max(within.start, within.end - length), end=within.end)
            records = [record for some in self._reader.read(part, tail) for record in some]
            if records:
                return records[-1].value()
            if tail.start == within.start:
                return None
            length *= 8

    def _decided(self, part: Partition) -> OffsetRange:
        """The partition's range, once no transaction in it is open."""
        open_until = time.monotonic() + OPEN_SECONDS_MAX
        while True:
            within = self._range(self._stable, part)
            if within.end == self._range(self._written, part).end:
                return within
            if time.monotonic() > open_until:
                raise ReceiptInDoubt(partition=part)
            time.sleep(0.05)

    def _range(self, offsets: TopicOffsets, part: Partition) -> OffsetRange:
        return offsets.available()[part.topic].partitions[part.number]
