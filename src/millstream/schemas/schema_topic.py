"""Reads and writes a `_schemas` topic, on any Kafka broker. A thin shell around `schema_book.py`.

To register is to compare after the write: append a proposal, read up to it, and see whether it
counts. If another writer was first, look again and propose the next version, or find that the
schema is there. Does not delete schemas. One caller at a time: not for several threads.
"""

import uuid
from collections.abc import Mapping
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream.base.closing import Closing
from millstream.base.errors import Rejected, Retryable
from millstream.base.log_clients import LogNotReached, LogRefused, offset_bounds
from millstream.base.schema import Schema
from millstream.base.topic_check import check_topics
from millstream.base.topic_terms import COMPACTED, TopicTerms
from millstream.schemas.declaration import Declared, schema_of
from millstream.schemas.schema_book import Proposal, SchemaBook, SchemaVersion

TOPIC = "_schemas"
# Every lost round is a version that somebody else registered.
PROPOSALS_MAX = 100
POLL_SECONDS = 0.5


class SchemasUnavailable(Retryable):
    def __init__(self, *, topic: str, brokers: str, doing: str, reason: str) -> None:
        super().__init__(
            f"cannot {doing} {topic} at {brokers}: {reason}. Is the broker up? Try again"
        )
        self.topic, self.brokers, self.doing, self.reason = topic, brokers, doing, reason


class UnfitSchemaTopic(Rejected):
    def __init__(self, *, topic: str, problem: str) -> None:
        super().__init__(
            f"the topic {topic} {problem}: schemas need one partition and cleanup.policy=compact"
        )
        self.topic, self.problem = topic, problem


class SchemaTopic(Closing):
    """`client` is what every client of the broker is given: `bootstrap.servers` and security."""

    def __init__(
        self, client: Mapping[str, Any], *, name: str = TOPIC, timeout_s: float = 30.0
    ) -> None:
        self.name = name
        self.book = SchemaBook()
        self._client = {"log_level": 3, **client}
        self._timeout_s = timeout_s
        self._read_to = 0
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def register(
        self,
        topic: str,
        declared: Declared,
        *,
        encoding: str = "json",
        definition: str = "",
        begins_anew: bool = False,
    ) -> SchemaVersion:
        """The version of this schema: the one that is there, or else a new one."""
        wanted = SchemaVersion(
            id=0,
            topic=topic,
            version=0,
            schema=schema_of(declared),
            encoding=encoding,
            definition=definition,
            begins_anew=begins_anew,
        )
        for _ in range(PROPOSALS_MAX):
            self.refresh()
            found = self.book.find(wanted) or self._propose(wanted)
            if found is not None:
                return found
        reason = f"{PROPOSALS_MAX} times another writer was first"
        raise self._unavailable(doing="register a schema in", reason=reason)

    def latest(self, topic: str) -> SchemaVersion:
        self.refresh()
        return self.book.latest(topic)

    def versions(self, topic: str) -> list[SchemaVersion]:
        self.refresh()
        return self.book.versions(topic)

    def with_id(self, id: int) -> SchemaVersion | None:
        """Asks the broker only for an id that is not known yet: a version never changes."""
        known = self.book.with_id(id)
        if known is None:
            self.refresh()
        return known or self.book.with_id(id)

    def check_reader(self, topic: str, declared: Declared) -> Schema:
        """The declared schema, if the topic's values can be read so."""
        self.refresh()
        wanted = schema_of(declared)
        self.book.check_reader(topic, wanted)
        return wanted

    def _propose(self, wanted: SchemaVersion) -> SchemaVersion | None:
        proposal = Proposal(wanted=self.book.next_of(wanted), name=uuid.uuid4().hex)
        key, value = proposal.to_record()
        self._append(key, value)
        self.refresh()
        if self.book.accepted(proposal):
            return proposal.wanted
        self._append(key, None)  # void: compaction may take it away
        return None

    def _append(self, key: bytes, value: bytes | None) -> None:
        reports: list[KafkaError | None] = []
        if self._producer is None:
            self._producer = Producer(self._producer_config())
        self._producer.produce(
            self.name,
            partition=0,
            key=key,
            value=value,
            on_delivery=lambda error, _: reports.append(error),
        )
        self._producer.flush(self._timeout_s + 1)
        if reports != [None]:
            reason = reports[0].str() if reports and reports[0] else "no answer in time"
            raise self._unavailable(doing="write to", reason=reason)

    def _producer_config(self) -> dict[str, Any]:
        return self._client | {
            "enable.idempotence": True,  # a proposal must not be there twice
            "message.timeout.ms": int(self._timeout_s * 1000),
            "linger.ms": 0,
        }

    def _unavailable(self, *, doing: str, reason: str) -> SchemasUnavailable:
        brokers = str(self._client.get("bootstrap.servers"))
        return SchemasUnavailable(topic=self.name, brokers=brokers, doing=doing, reason=reason)

    def refresh(self) -> None:
        """Read all that is there now."""
        try:
            self._refresh()
        except KafkaException as error:
            raise self._unavailable(doing="read", reason=error.args[0].str()) from None
        except (LogNotReached, LogRefused) as error:
            raise self._unavailable(doing="read", reason=error.reason) from None

    def _refresh(self) -> None:
        if self._consumer is None:
            self._consumer = self._open_consumer()
        end = offset_bounds(
            self._consumer,
            TopicPartition(self.name, 0),
            self._client,
            patience_s=self._timeout_s,
        ).end
        deadline = monotonic() + self._timeout_s
        while self._read_to < end:
            message = self._consumer.poll(POLL_SECONDS)
            if message is not None:
                self._apply(message)
            elif monotonic() > deadline:
                reason = f"nothing came after offset {self._read_to} of {end}"
                raise self._unavailable(doing="read", reason=reason)

    def _open_consumer(self) -> Consumer:
        self._ensure_topic()
        consumer = Consumer(
            self._client
            | {
                "group.id": "millstream-schemas",  # asked for by the client; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        self._read_to = 0
        self.book = SchemaBook()
        consumer.assign([TopicPartition(self.name, 0, 0)])
        return consumer

    def _apply(self, message: Message) -> None:
        error = message.error()
        offset = message.offset() or 0
        if error is None:
            self.book.apply(message.key(), message.value(), offset=offset)
            self._read_to = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._read_to = max(self._read_to, offset)  # what compaction removed needs no reading
        else:
            raise KafkaException(error)

    def _ensure_topic(self) -> None:
        admin = AdminClient(self._client)
        partitions = self._partitions(admin)
        if partitions == 0:
            self._create(admin)
            partitions = 1
        if partitions != 1:
            raise UnfitSchemaTopic(topic=self.name, problem=f"has {partitions} partitions")
        terms = TopicTerms(name=self.name, config=COMPACTED, holds="schemas")
        check_topics(admin, [terms], {self.name: partitions})

    def _partitions(self, admin: AdminClient) -> int:
        # All topics: to ask for one by its name may create it, with other settings.
        found = admin.list_topics(timeout=self._timeout_s).topics.get(self.name)
        return 0 if found is None else len(found.partitions)

    def _create(self, admin: AdminClient) -> None:
        compacted = NewTopic(self.name, 1, config=dict(COMPACTED))
        created = admin.create_topics([compacted], operation_timeout=self._timeout_s)[self.name]
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
