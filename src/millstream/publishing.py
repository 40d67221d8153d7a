"""Rows of an application into its declared topics, each durable when the call returns.

A row is a mapping, a dataclass or a pydantic model that fits the topic's schema; with `_change`
"delete" it needs only its key, and deletes the row of a table. A topic without a schema takes
bytes, text or a `Record`. What does not fit is refused before anything of the call is sent.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.errors import Rejected, Retryable
from millstream.base.record import Record
from millstream.base.topic_terms import COMPACTED, TopicTerms
from millstream.base.tracing import published, span, traced
from millstream.queues.outbox import NotInTime, Outbox, PutFailed, PutRefused, Receipt
from millstream.schemas.registration import settle_writer
from millstream.schemas.schema_topic import TOPIC, SchemaTopic

Declared = DeclaredTopic | DeclaredTable
ToRecord = Callable[[Any], Record]
BROKERS_DEFAULT = -1
BOOTSTRAP = "bootstrap.servers"


# How long a call waits unless it says so: as long as its client tries to send a row.
PUBLISH_SECONDS_MAX = 60.0


class Deadline:
    """Of one call, from looking up its topic to the last confirmation."""

    def __init__(self, timeout: float = PUBLISH_SECONDS_MAX) -> None:
        self.timeout, self.at = timeout, time.monotonic() + timeout  # by the monotonic clock

    @property
    def left(self) -> float:
        return max(0.0, self.at - time.monotonic())


class PublishFailed(Retryable):
    """It may be in the topic or not: after an unanswered request nobody knows."""

    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: a row was not confirmed ({reason}); publish it again")
        self.topic, self.reason = topic, reason


class PublishTimedOut(PublishFailed):
    """The time that the caller gave was up. What was sent may still arrive, for up to a minute."""

    def __init__(self, *, topic: str, reason: str, timeout: float) -> None:
        Retryable.__init__(
            self,
            f"{topic}: not confirmed within {timeout:g} s ({reason}). Rows that were sent may "
            "still be written within a minute: publish them again where a second copy does no "
            "harm, or give a larger timeout=",
        )
        self.topic, self.reason, self.timeout = topic, reason, timeout


class PublishRefused(Rejected):
    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(
            f"{topic}: the broker refused a row ({reason}); it is not in the topic: change the "
            "row, or what the topic and the user may hold and do"
        )
        self.topic, self.reason = topic, reason


class NotARawValue(Rejected):
    def __init__(self, *, topic: str, found: object) -> None:
        super().__init__(
            f"{topic} has no schema: publish bytes, text or a Record, not {type(found).__name__}; "
            "or declare its schema"
        )
        self.topic = topic


class Publisher:
    """Thread-safe; makes a topic and registers its schema when it is first written."""

    def __init__(self, config: Mapping[str, Any], *, schemas_topic: str = TOPIC) -> None:
        self._config, self._schemas_topic = config, schemas_topic
        self._lock = threading.Lock()
        self._outbox: Outbox | None = None
        self._ready: dict[str, Future[ToRecord]] = {}

    def publish(
        self, declared: Declared, rows: Any, *, timeout: float = PUBLISH_SECONDS_MAX
    ) -> Any:
        """A receipt for a row, where it is; a list of them for a list of rows."""
        if not is_several(rows):
            return self._publish(declared, [rows], timeout)[0]
        return self._publish(declared, list(rows), timeout)

    def _publish(self, declared: Declared, rows: Sequence[Any], timeout: float) -> list[Receipt]:
        until = Deadline(timeout)
        return self.put(declared.name, self.records(declared, rows, until=until), until=until)

    def records(
        self, declared: Declared, rows: Sequence[Any], *, until: "Deadline | None" = None
    ) -> list[Record]:
        """What `put` takes, for a topic that is there from now on."""
        prepared, until = self._prepared(declared), until or Deadline()
        try:
            to_record = prepared.result(until.left)
        except TimeoutError:
            if prepared.done():  # what the preparation raised itself
                raise
            reason = "the topic and its schema are being looked up; does the broker answer?"
            raise PublishTimedOut(
                topic=declared.name, reason=reason, timeout=until.timeout
            ) from None
        return [to_record(row) for row in rows]

    def put(
        self, topic: str, records: Sequence[Record], *, until: "Deadline | None" = None
    ) -> list[Receipt]:
        with span(f"publish {topic}", published(topic, len(records))):
            return self._put(topic, traced(records), until or Deadline())

    def _put(self, topic: str, records: Sequence[Record], until: "Deadline") -> list[Receipt]:
        with self._lock:
            outbox = self._usable_outbox()
        try:
            return outbox.put(topic, records, deadline=until.at)
        except NotInTime as error:
            raise PublishTimedOut(
                topic=error.topic, reason=error.reason, timeout=until.timeout
            ) from None
        except PutFailed as error:
            raise PublishFailed(topic=error.topic, reason=error.reason) from None
        except PutRefused as error:
            raise PublishRefused(topic=error.topic, reason=error.reason) from None

    def close(self) -> None:
        with self._lock:
            outbox, self._outbox = self._outbox, None
        if outbox is not None:
            outbox.close()

    def _usable_outbox(self) -> Outbox:
        if self._outbox is None or self._outbox.is_broken:
            self._outbox = Outbox("app.publish", self._config, records="rows")
        return self._outbox

    def _prepared(self, declared: Declared) -> "Future[ToRecord]":
        """Once for each topic, in a thread of its own, so that nobody has to wait to its end; after
        an error again."""
        with self._lock:
            found = self._ready.get(declared.name)
            if found is not None and not (found.done() and found.exception() is not None):
                return found
            future = self._ready[declared.name] = Future()

        def prepare() -> None:
            try:
                future.set_result(self._prepare(declared))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=prepare, name=f"publish {declared.name}", daemon=True).start()
        return future

    def _prepare(self, declared: Declared) -> ToRecord:
        with SchemaTopic(self._config, name=self._schemas_topic) as schemas:
            if declared.schema is not None:
                settle_writer(schemas, declared)
        make_declared_topic(self._config, declared)
        return record_maker(declared)


def make_declared_topic(config: Mapping[str, Any], declared: Declared) -> None:
    """Make the topic as it was declared, unless it exists: then it is compared."""
    make_declared_topics(config, [declared])


def make_declared_topics(config: Mapping[str, Any], wanted: Iterable[Declared]) -> None:
    """Make the topics that are missing as they were declared, and compare the others.

    A topic that is missing is asked for by no name before it is made: that may make it, with the
    broker's defaults. A client that may not make a topic may use one that exists.
    """
    check_declared_topics(config, make_missing_topics(config, wanted))


def make_missing_topics(config: Mapping[str, Any], wanted: Iterable[Declared]) -> list[Declared]:
    """Gives those that exist already."""
    from millstream.processing.kafka_clients import make_topic, topic_partitions

    if not (wanted := list(wanted)):
        return []
    brokers, client = _apart(config)
    there = topic_partitions(brokers, client)
    found: list[Declared] = []
    for declared in wanted:
        if declared.name in there:
            found.append(declared)
            continue
        terms = terms_of(declared)
        partitions = terms.partitions or BROKERS_DEFAULT
        facts: dict[str, Any] = {"config": terms.config, "holds": terms.holds}
        make_topic(brokers, client, terms.name, partitions=partitions, **facts)
    return found


def check_declared_topics(config: Mapping[str, Any], wanted: Iterable[Declared]) -> None:
    """Those that exist: refuse one that would lose rows, warn of other differences."""
    from millstream.processing.kafka_clients import check_existing

    terms = [terms_of(declared) for declared in wanted]
    if said := [one for one in terms if one.config or one.partitions is not None]:
        brokers, client = _apart(config)
        check_existing(brokers, client, said)


def terms_of(declared: Declared) -> TopicTerms:
    """What the topic of a declaration must be; a table's is compacted."""
    is_table = isinstance(declared, DeclaredTable)
    return TopicTerms(
        name=declared.name,
        config=COMPACTED | declared.options if is_table else declared.options,
        partitions=declared.partitions,
        holds=f"rows of table {declared.name}" if is_table else "events",
    )


def _apart(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    client = {name: value for name, value in config.items() if name != BOOTSTRAP}
    return str(config[BOOTSTRAP]), client


def record_maker(declared: Declared) -> ToRecord:
    if declared.schema is None:
        return lambda row: raw_record(declared.name, row)
    from millstream.values.row_records import BadRow, row_records  # needs pyarrow

    records = row_records(declared, declared.schema)
    is_table = isinstance(declared, DeclaredTable)

    def to_record(row: Any) -> Record:
        key, value = records.record(row)
        if is_table and key is None:
            problem = f"a row of a table needs its key, {', '.join(declared.key)}"
            raise BadRow(topic=declared.name, row=row, problem=problem)
        return Record(key=key, value=value)

    return to_record


def raw_record(topic: str, found: Any) -> Record:
    match found:
        case Record():
            return found
        case str():
            return Record(value=found.encode())
        case bytes() | bytearray() | memoryview():
            return Record(value=bytes(found))
    raise NotARawValue(topic=topic, found=found)


def is_several(rows: Any) -> bool:
    return isinstance(rows, list | tuple | Iterator)
