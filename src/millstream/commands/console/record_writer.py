"""Writes one record that somebody typed; it is durable when the call returns."""

from typing import Any

from millstream.commands.connecting import (
    ANSWER_SECONDS_MAX,
    NoAnswerInTime,
    bootstrap,
    client_config,
    error_from,
)
from millstream.setting_kinds import Address
from millstream.web.console.facts import NewRecord

ANY_PARTITION = -1  # the key decides, or chance


class RecordWriter:
    """For one thread at a time. Its client stays, with its connection."""

    def __init__(self, brokers: tuple[Address, ...]) -> None:
        from confluent_kafka import Producer

        self._brokers = brokers
        self._producer = Producer(
            client_config(brokers)
            | {
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": int(ANSWER_SECONDS_MAX * 1000),
            }
        )

    def write(self, record: NewRecord) -> tuple[int, int]:
        """Its partition and offset."""
        from confluent_kafka import KafkaException

        told: list[tuple[Any, Any]] = []
        partition = ANY_PARTITION if record.partition is None else record.partition
        doing = f"produce to {record.topic}"
        try:
            self._producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                partition=partition,
                headers=list(record.headers),
                on_delivery=lambda error, message: told.append((error, message)),
            )
        except KafkaException as error:
            raise self._error(error.args[0], doing) from None
        self._producer.flush(ANSWER_SECONDS_MAX + 1)
        if not told:
            raise NoAnswerInTime(doing=doing)
        [(fault, message)] = told
        if fault is not None:
            raise self._error(fault, doing)
        return message.partition() or 0, message.offset() or 0

    def _error(self, error: Any, doing: str) -> Exception:
        return error_from(error, doing=doing, brokers=bootstrap(self._brokers))
