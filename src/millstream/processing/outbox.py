"""A producer for what a task sets aside; its topics are made when they are first needed."""

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, Message, Producer

from millstream.processing.kafka_clients import (
    PATIENCE_SECONDS,
    BrokerNotReached,
    client_config,
    error_from,
    make_topic,
)

Header = tuple[str, str | bytes | None]


class Outbox:
    """All that was sent is on disk when `close` returns."""

    def __init__(self, brokers: str, client: Mapping[str, str]) -> None:
        self._brokers, self._client = brokers, client
        self._failed: list[KafkaError] = []
        self._made: set[str] = set()
        self._producer = Producer(
            client_config(brokers, client)
            | {
                "enable.idempotence": True,
                "message.timeout.ms": int(PATIENCE_SECONDS * 1000),
                "message.max.bytes": 1_000_000_000,  # the broker has its own limit
            }
        )

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        topic_config: Mapping[str, str],
    ) -> None:
        """A topic that is not there is made, with one partition and `topic_config`."""
        self._make_topic(topic, topic_config)
        while True:
            try:
                return self._producer.produce(
                    topic,
                    key=key,
                    value=value,
                    headers=list(headers),
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(0.1)

    def close(self, *, doing: str) -> None:
        left = self._producer.flush(PATIENCE_SECONDS)
        if self._failed:
            raise error_from(self._failed[0], doing=doing, brokers=self._brokers)
        if left:
            raise BrokerNotReached(brokers=self._brokers, doing=doing)

    def _make_topic(self, topic: str, config: Mapping[str, str]) -> None:
        if topic not in self._made:
            make_topic(
                self._brokers, self._client, topic, partitions=1, config=config, is_needed=False
            )
            self._made.add(topic)

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)
