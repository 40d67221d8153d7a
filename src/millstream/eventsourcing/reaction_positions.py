"""How far reactions are, in the compacted topic `<app>.reactions`.

key    <name of the reaction>/<partition of the events topic>
value  {"offset":117}        the first event that it has not seen
"""

import time
from typing import Any

import msgspec
from confluent_kafka import Consumer, TopicPartition

from millstream.base.errors import Corrupt
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    Topics,
    client_config,
    translated,
)
from millstream.eventsourcing.event_log import some_messages

POLL_SECONDS = 0.2
CONSUMER = {
    "group.id": "millstream-reactions",  # asked for by the client; nothing is committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}


class BadPosition(Corrupt):
    def __init__(self, *, topic: str, offset: int, reason: str) -> None:
        super().__init__(f"{topic}, offset {offset}, is no position of a reaction: {reason}")
        self.topic, self.offset, self.reason = topic, offset, reason


class Position(msgspec.Struct, frozen=True):
    offset: int


_decode = msgspec.json.Decoder(Position).decode


def write_position(reaction: str, partition: int, offset: int) -> tuple[bytes, bytes]:
    """Key and value."""
    return f"{reaction}/{partition}".encode(), msgspec.json.encode(Position(offset))


def read_positions(client: Client, topic: str, reaction: str) -> dict[int, int]:
    """By partition: the last one of each counts."""
    end = Topics(client).committed_ends(topic, [0])[0]
    found: dict[int, int] = {}
    consumer: Any = Consumer(client_config(client) | CONSUMER)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        at, until = 0, time.monotonic() + PATIENCE_SECONDS
        while at < end:
            with translated(client, doing=f"read {topic}"):
                messages = some_messages(consumer, POLL_SECONDS)
            for message in messages:
                at = max(at, (message.offset() or 0) + (message.error() is None))
                if message.error() is None:
                    _take(found, message, topic, reaction)
            if time.monotonic() > until:
                brokers = str(client["bootstrap.servers"])
                raise LogNotReached(brokers=brokers, doing=f"read {topic}", reason="no answer")
    finally:
        consumer.close()
    return found


def _take(found: dict[int, int], message: Any, topic: str, reaction: str) -> None:
    name, _, partition = (message.key() or b"").decode(errors="replace").rpartition("/")
    if name != reaction or message.value() is None:
        return
    try:
        found[int(partition)] = _decode(message.value()).offset
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadPosition(topic=topic, offset=message.offset(), reason=str(error)) from None
