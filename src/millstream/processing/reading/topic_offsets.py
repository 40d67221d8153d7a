"""Asks a broker which partitions topics have, and which offsets those hold. Reads no record.

Two or three small requests per question, whatever the number of partitions.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition

from millstream.base.declared import LATE_SUFFIX
from millstream.base.errors import Rejected
from millstream.base.librdkafka import NO_SUCH_TOPIC, admin_api
from millstream.base.offsets import OffsetRange
from millstream.processing.kafka_clients import (
    PATIENCE_SECONDS,
    BrokerNotReached,
    TopicNotFound,
    admin_client,
    answer_in,
    code_of,
    error_from,
    patiently,
    translated,
)
from millstream.processing.reading.archived_records import archive_at
from millstream.processing.reading.offset_plan import Available, AvailableTopic, Partition
from millstream.processing.reading.places import AtOffsets, AtTime, Earliest, Latest, Place
from millstream.processing.reading.topic_read import TopicRead

# A pattern means an application's topics: not the broker's, nor letters that nobody could read,
# nor what came too late.
INTERNAL_PREFIX = "_"
DEAD_SUFFIX = ".dead"
# What a broker answers to a time after its last record.
NO_RECORD_SO_LATE = -1


class OffsetNotThere(Rejected):
    def __init__(self, *, option: str, partition: str, offset: int, available: OffsetRange) -> None:
        super().__init__(
            f"{option}: offset {offset} of {partition} is not there, it has {available}. Name "
            "another one, or set on_loss to skip to take the nearest"
        )
        self.option, self.partition = option, partition
        self.offset, self.available = offset, available


class PatternNotValid(Rejected):
    def __init__(self, *, pattern: str, reason: str) -> None:
        super().__init__(f"pattern {pattern!r} is not a regular expression: {reason}")
        self.pattern, self.reason = pattern, reason


Ids = Mapping[str, tuple[str, list[int]]]


class TopicOffsets:
    """The offsets of the topics of one read."""

    def __init__(self, read: TopicRead) -> None:
        self._read = read
        self._admin = admin_client(read.brokers, read.client)
        self._archive = archive_at(read.archive) if read.archive else None

    def available(self) -> Available:
        """Every topic of the read, with all its partitions, as they are now.

        A range ends at the last stable offset for who reads committed records only. It begins in
        the archive, if there is one and nothing is missing between it and the log.
        """
        there = patiently(self._available)
        return there if self._archive is None else self._archive.reach(there)

    def require_no_holes(self) -> None:
        """For who begins at the start: that is not to be somewhere behind what was lost."""
        if self._archive is not None and self._read.on_loss == "fail":
            self._archive.require_no_holes(patiently(self._available))

    def _available(self) -> Available:
        topics = self._topics()
        parts = _parts(topics)
        starts, ends = self._offsets(parts, Earliest()), self._offsets(parts, Latest())
        return {
            topic: AvailableTopic(
                topic_id=topic_id,
                partitions={
                    number: OffsetRange(
                        start=starts[Partition(topic, number)], end=ends[Partition(topic, number)]
                    )
                    for number in numbers
                },
            )
            for topic, (topic_id, numbers) in topics.items()
        }

    def offsets_at(
        self, place: Place, available: Available, *, option: str, unnamed: Place
    ) -> dict[Partition, int]:
        """The offset that `place` means in every partition; `unnamed` for what it does not name."""
        ranges = {
            Partition(topic, number): within
            for topic, there in available.items()
            for number, within in there.partitions.items()
        }
        match place:
            case Earliest():
                return {part: within.start for part, within in ranges.items()}
            case Latest():
                return {part: within.end for part, within in ranges.items()}
            case AtTime():
                found = patiently(lambda: self._offsets(ranges, place))
                return {
                    part: self._at_time(part, found[part], within, place.time_ms)
                    for part, within in ranges.items()
                }
            case AtOffsets():
                others = self.offsets_at(unnamed, available, option=option, unnamed=unnamed)
                named = {part: place.of(*part) for part in ranges}
                return {
                    part: others[part]
                    if offset is None
                    else self._checked(part, offset, ranges[part], option)
                    for part, offset in named.items()
                }

    def _at_time(self, part: Partition, found: int, within: OffsetRange, time_ms: int) -> int:
        """What the broker found, unless an earlier record is archived."""
        in_log = within.end if found < 0 else max(within.start, min(found, within.end))
        if self._archive is None:
            return in_log
        archived = OffsetRange(start=within.start, end=in_log)
        earlier = self._archive.first_at(part, archived, time_ms)
        return in_log if earlier is None else earlier

    def _checked(self, part: Partition, offset: int, within: OffsetRange, option: str) -> int:
        nearest = max(within.start, min(offset, within.end))
        if nearest != offset and self._read.on_loss == "fail":
            raise OffsetNotThere(
                option=option, partition=str(part), offset=offset, available=within
            )
        return nearest

    def _topics(self) -> Ids:
        """Ids and partition numbers by name, of the named topics or those that match."""
        names = self._read.topics or tuple(self._matching())
        if not names:
            return {}
        answers = self._admin.describe_topics(TopicCollection(list(names)))
        return {name: self._described(name, answer) for name, answer in sorted(answers.items())}

    def _described(self, name: str, answer: Any) -> tuple[str, list[int]]:
        doing = f"describe topic {name}"
        try:
            found = answer_in(answer, doing=doing, brokers=self._read.brokers)
        except KafkaException as error:
            if code_of(error) in NO_SUCH_TOPIC:
                raise TopicNotFound(topic=name, known=self._names()) from None
            raise error_from(error.args[0], doing=doing, brokers=self._read.brokers) from None
        return str(found.topic_id), sorted(part.id for part in found.partitions)

    def _matching(self) -> list[str]:
        try:
            pattern = re.compile(self._read.pattern)
        except re.error as error:
            raise PatternNotValid(pattern=self._read.pattern, reason=str(error)) from None
        return [
            name
            for name in self._names()
            if pattern.fullmatch(name)
            and not name.startswith(INTERNAL_PREFIX)
            and not name.endswith((DEAD_SUFFIX, LATE_SUFFIX))
        ]

    def _names(self) -> list[str]:
        listing = self._asked(
            lambda: self._admin.list_topics(timeout=PATIENCE_SECONDS), "list topics"
        )
        return sorted(listing.topics)

    def _offsets(self, parts: Iterable[Partition], place: Place) -> dict[Partition, int]:
        wanted = {TopicPartition(*part): _offset_spec(place) for part in parts}
        if not wanted:
            return {}
        isolation = IsolationLevel.READ_UNCOMMITTED
        if self._read.read_committed:
            isolation = IsolationLevel.READ_COMMITTED
        answers = self._admin.list_offsets(wanted, isolation_level=isolation)
        return {
            Partition(asked.topic, asked.partition): self._offset_in(answer, asked.topic)
            for asked, answer in answers.items()
        }

    def _offset_in(self, answer: Any, topic: str) -> int:
        doing = f"list the offsets of {topic}"
        offset: int = self._asked(lambda: answer.result(PATIENCE_SECONDS).offset, doing)
        if is_unknown(offset):
            raise BrokerNotReached(brokers=self._read.brokers, doing=doing)
        return offset

    def _asked(self, call: Any, doing: str) -> Any:
        return translated(call, doing=doing, brokers=self._read.brokers)


def _parts(topics: Ids) -> list[Partition]:
    return [Partition(topic, n) for topic, (_, numbers) in topics.items() for n in numbers]


def is_unknown(offset: int) -> bool:
    """librdkafka answers so, and without an error, for a broker that was just restarted."""
    return offset < NO_RECORD_SO_LATE


def _offset_spec(place: Place) -> Any:
    spec = admin_api().OffsetSpec
    match place:
        case Latest():
            return spec.latest()
        case AtTime():
            return spec.for_timestamp(place.time_ms)
        case _:
            return spec.earliest()
