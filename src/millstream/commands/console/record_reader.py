"""Reads a few records for a page, and follows a topic for a tail. Joins no group, commits nothing.

Only what is committed: as a consumer sees it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.base.offsets import OffsetRange
from millstream.commands.connecting import Partition, bootstrap, client_config, error_from
from millstream.setting_kinds import Address
from millstream.web.console.facts import RecordSeen

READ_SECONDS_MAX = 5.0
POLL_SECONDS = 0.2
MESSAGES_MAX = 500
TAIL_MESSAGES_MAX = 2_000
# Of a page of the newest: more partitions than this are asked for when one is chosen.
PARTITIONS_READ_MAX = 32
PASSING = ("_PARTITION_EOF", "_ALL_BROKERS_DOWN", "_TRANSPORT", "_AUTO_OFFSET_RESET")


def newest_records(
    brokers: tuple[Address, ...], available: Mapping[Partition, OffsetRange], *, limit: int
) -> list[RecordSeen]:
    """Of each partition the last few; the newest first."""
    filled = {part: within for part, within in available.items() if within.end > within.start}
    chosen = dict(list(filled.items())[:PARTITIONS_READ_MAX])
    if not chosen:
        return []
    each = -(-limit // len(chosen))
    wanted = {
        part: OffsetRange(start=max(within.start, within.end - each), end=within.end)
        for part, within in chosen.items()
    }
    found = _read(brokers, wanted, limit=limit)
    found.sort(key=lambda one: (one.timestamp_ms or 0, one.partition, one.offset), reverse=True)
    return found[:limit]


def records_from(
    brokers: tuple[Address, ...], part: Partition, within: OffsetRange, *, offset: int, limit: int
) -> list[RecordSeen]:
    """In order, from an offset or what is left after it."""
    start = max(offset, within.start)
    if start >= within.end:
        return []
    return _read(brokers, {part: OffsetRange(start=start, end=within.end)}, limit=limit)[:limit]


def _read(
    brokers: tuple[Address, ...], wanted: Mapping[Partition, OffsetRange], *, limit: int
) -> list[RecordSeen]:
    """Until each range is read, the limit is reached, or the time is up: then what came is all."""
    consumer = _consumer(brokers, tail=False)
    found: list[RecordSeen] = []
    unread = dict(wanted)
    until = time.monotonic() + READ_SECONDS_MAX
    try:
        consumer.assign([_place(part, within.start) for part, within in wanted.items()])
        while unread and len(found) < limit * len(wanted) and time.monotonic() < until:
            for message in consumer.consume(min(limit, MESSAGES_MAX), POLL_SECONDS):
                part = Partition(str(message.topic()), message.partition() or 0)
                if message.error() is None and part in unread:
                    found.append(_record(message))
                _note(message, part, unread, brokers)
    finally:
        consumer.close()
    return [one for one in found if one.offset in wanted[Partition(one.topic, one.partition)]]


def _note(
    message: Any,
    part: Partition,
    unread: dict[Partition, OffsetRange],
    brokers: tuple[Address, ...],
) -> None:
    """Whether the partition is read to the end of its range."""
    error = message.error()
    if error is not None and error.name() not in PASSING and not error.retriable():
        raise error_from(error, doing=f"read {part}", brokers=bootstrap(brokers))
    is_end = error is not None and error.name() == "_PARTITION_EOF"
    if part in unread and (is_end or (message.offset() or 0) + 1 >= unread[part].end):
        del unread[part]


class Tail:
    """From the ends of the partitions on, as they are when it is made."""

    def __init__(self, brokers: tuple[Address, ...], partitions: Sequence[Partition]) -> None:
        from confluent_kafka import OFFSET_END

        self._brokers = brokers
        self._consumer = _consumer(brokers, tail=True)
        self._consumer.assign([_place(part, OFFSET_END) for part in partitions])

    def poll(self, timeout_s: float) -> list[RecordSeen]:
        """A broker that is gone for a moment is waited for."""
        found = []
        for message in self._consumer.consume(TAIL_MESSAGES_MAX, timeout_s):
            error = message.error()
            if error is None:
                found.append(_record(message))
            elif error.name() not in PASSING and not error.retriable():
                raise error_from(error, doing="follow the topic", brokers=bootstrap(self._brokers))
        return found

    def close(self) -> None:
        self._consumer.close()


def _consumer(brokers: tuple[Address, ...], *, tail: bool) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        client_config(brokers)
        | {
            "group.id": "millstream-console",  # never joined, and never committed to
            "enable.auto.commit": False,
            "enable.partition.eof": not tail,
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest" if tail else "earliest",
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 16_384,
        }
    )


def _place(part: Partition, offset: int) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(part.topic, part.number, offset)


def _record(message: Any) -> RecordSeen:
    kind, time_ms = message.timestamp()
    return RecordSeen(
        topic=str(message.topic()),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=time_ms if kind else None,
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )
