"""The events of an App, joined to what they need: the broker, settings, keys; jobs that read them.

One topic, `<app>.events`, for all aggregates of the app: a job has it as the input `events`. The
store is opened when something first needs it, so that a program can declare its aggregates before
there is a broker. How events are kept is in `eventsourcing/`.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from millstream.base.declared import BadDeclaration, DeclaredTopic, EventTime
from millstream.base.near_names import did_you_mean, there_are
from millstream.base.quantity import DAY_MS
from millstream.base.schema import BadSchema, DataType, Field, Scalar, Struct
from millstream.forgetting import EVENTS_SUFFIX, Forgetting
from millstream.processing.jobs.catalog import Catalog
from millstream.schemas.classes import schema_from_class
from millstream.schemas.declaration import schema_of
from millstream.schemas.library_missing import LibraryMissing
from millstream.settings import EventSettings, load

if TYPE_CHECKING:
    from millstream.eventsourcing.aggregate import Aggregate
    from millstream.eventsourcing.aggregates import Aggregates
    from millstream.eventsourcing.command_sender import CommandSender
    from millstream.eventsourcing.command_topic import Names
    from millstream.eventsourcing.event_store import EventStore
    from millstream.eventsourcing.snapshots import SnapshotTopic

AggregateT = TypeVar("AggregateT", bound="Aggregate")
# Decided by a writer of this process, or by whoever hosts them.
CommandWay = Literal["direct", "topic"]

logger = logging.getLogger(__name__)

INPUT: Final = "events"
SNAPSHOTS_SUFFIX: Final = ".snapshots"
INDEX_DIRECTORY: Final = "events"
# Events are kept for ever: nothing else has them.
TOPIC_OPTIONS: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
# Facts are never late: a rebuild reads years of them, from partitions that are not equally far.
LATENESS_MS: Final = 100 * 365 * DAY_MS
COLUMNS: Final = (
    "seq BIGINT NOT NULL, stream STRING NOT NULL, version BIGINT NOT NULL, type STRING NOT NULL, "
    "type_version INT NOT NULL, id STRING NOT NULL, at TIMESTAMP NOT NULL, tags ARRAY<STRING>, "
    "command STRUCT<id: STRING, print: STRING>, meta STRUCT<command: STRING, by: STRING, "
    "why: STRING, causation: STRING, correlation: STRING>"
)
# A type that takes the values of both; other pairs conflict.
WIDER: Final[Mapping[frozenset[DataType], DataType]] = {
    frozenset({Scalar.BIGINT, Scalar.DOUBLE}): Scalar.DOUBLE,
}


class UnknownAggregate(BadDeclaration):
    def __init__(self, *, app: str, stream: str, known: Iterable[str]) -> None:
        known = sorted(known)
        hint = did_you_mean(stream.partition(":")[0], known)
        told = f"app {app} has no aggregate for stream {stream!r} (there are: {there_are(known)})"
        super().__init__(f"{told}. {hint}".rstrip(". "))
        self.app, self.stream = app, stream


class OpenedLater:
    """Stands for something that is opened when it is first used; closed only if it was."""

    def __init__(self, open: Callable[[], Any]) -> None:
        self._open, self._lock = open, threading.Lock()
        self._opened: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.opened(), name)

    def opened(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def close_opened(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class AppEvents:
    """Those of one App. Thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        app: str,
        data: Path,
        forgetting: Forgetting,
        client_config: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.topic = app + EVENTS_SUFFIX
        self.declared: dict[str, Aggregates[Any]] = {}
        self._catalog, self._app, self._data = catalog, app, data
        self._forgetting, self._client_config = forgetting, client_config
        self._partitions: int | None = None
        self._lock = threading.Lock()
        self._store = OpenedLater(self._open_store)
        self._snapshots = OpenedLater(self._open_snapshots)
        self._sender = OpenedLater(self._open_sender)
        for name in (INPUT, self.topic):
            catalog.provide(name, self.as_input)

    def declare(
        self,
        kind: "type[AggregateT]",
        *,
        partitions: int | None = None,
        snapshot_every: int | None = None,
        commands: "CommandWay | None" = None,
    ) -> "Aggregates[AggregateT]":
        """The aggregates of this class, the same object each time."""
        from millstream.eventsourcing.aggregate import require_aggregate
        from millstream.eventsourcing.aggregates import Aggregates

        name = require_aggregate(kind).__plan__.name
        self.require_partitions(partitions)
        settings = load(EventSettings)
        with self._lock:
            known = self.declared.get(name)
            if known is None:
                known = self.declared[name] = Aggregates(
                    kind,
                    cast("EventStore", self._store),
                    snapshots=cast("SnapshotTopic", self._snapshots),
                    snapshot_every=snapshot_every or settings.snapshot_every,
                    sealing=cast(Any, OpenedLater(lambda: self._forgetting.sealing)),
                    states_max=settings.states_max,
                    sender=cast("CommandSender", self._sender),
                    sends_all=commands == "topic",
                )
        if known.kind is not kind:
            raise BadDeclaration(
                f"two aggregates with the name {name}, and streams are named after it: give one "
                f'of them another, class {kind.__name__}(Aggregate, name="...")'
            )
        if commands is not None and known.sends_all != (commands == "topic"):
            raise BadDeclaration(f"{name}: its commands were to go another way before: say it once")
        return known

    def require_partitions(self, partitions: int | None) -> None:
        if partitions is None:
            return
        if self._partitions not in (None, partitions):
            raise BadDeclaration(
                f"{self.topic} was to have {self._partitions} partitions, and now {partitions}: "
                "all aggregates of an app share them"
            )
        self._partitions = partitions

    def of_stream(self, stream: str) -> "tuple[Aggregates[Any], str]":
        """The aggregates that a stream belongs to, and its id among them."""
        name, _, id = stream.partition(":")
        if name not in self.declared:
            raise UnknownAggregate(app=self._app, stream=stream, known=self.declared)
        return self.declared[name], id

    def store(self) -> "EventStore":
        return cast("EventStore", self._store.opened())

    def close(self) -> None:
        """What waits to be decided is decided first."""
        self._sender.close_opened()
        self._store.close_opened()
        self._snapshots.close_opened()

    def _open_store(self) -> "EventStore":
        try:
            from millstream.eventsourcing.event_store import EventStore
        except ModuleNotFoundError as error:
            raise library_missing(error) from None
        return EventStore(
            self._client_config(),
            self.topic,
            partitions=self._partitions,
            index_dir=self._data.absolute() / INDEX_DIRECTORY,
            command_ids_max=load(EventSettings).command_ids_max,
        )

    @property
    def names(self) -> "Names":
        """Of the topics that commands go over."""
        from millstream.eventsourcing.command_topic import Names

        return Names.of_app(self._app)

    def _open_sender(self) -> "CommandSender":
        from millstream.eventsourcing.command_sender import CommandSender

        return CommandSender(dict(self._client_config()), self.names, self.store())

    def _open_snapshots(self) -> "SnapshotTopic":
        from millstream.eventsourcing.snapshots import SnapshotTopic

        name, partitions = self._app + SNAPSHOTS_SUFFIX, self.store().partitions
        return SnapshotTopic(self._client_config(), name, partitions=partitions)

    # --- as an input of jobs ------------------------------------------------------------------

    def as_input(self) -> DeclaredTopic:
        """As jobs read it. `data` has the fields of all events that the app declares."""
        kinds = [kind for one in self.declared.values() for kind in one.plan.kinds]
        return DeclaredTopic(
            name=self.topic,
            schema=events_schema(kinds),
            event_time=EventTime(
                column="at", lateness_ms=LATENESS_MS, ahead_ms_max=LATENESS_MS, idle_ms=None
            ),
            partitions=self._partitions,
            options=dict(TOPIC_OPTIONS),
        )


def library_missing(error: ModuleNotFoundError) -> Exception:
    if error.name != "msgspec":
        return error
    return LibraryMissing(library="msgspec", extra="eventsourcing", use="events and aggregates")


# --- the columns of events --------------------------------------------------------------------


def events_schema(kinds: Iterable[type]) -> Struct:
    """The columns that every event has, and `data`, if there is something to have in it."""
    data = tuple(_merged_fields(kinds))
    own = schema_of(COLUMNS).fields
    return Struct((*own, Field("data", Struct(data)))) if data else Struct(own)


def _merged_fields(kinds: Iterable[type]) -> Iterator[Field]:
    """One field for each name in all events; those that do not go together are left out."""
    found: dict[str, list[tuple[str, DataType]]] = {}
    for kind in kinds:
        for name, data_type in _fields_of(kind):
            found.setdefault(name, []).append((kind.__name__, data_type))
    folded: set[str] = set()
    for name, all_types in found.items():
        merged = _merged(name, all_types)
        if merged is not None and name.lower() not in folded:  # Spark ignores case
            folded.add(name.lower())
            yield Field(name, merged)


def _fields_of(kind: type) -> Iterator[tuple[str, DataType]]:
    """As they are stored: a text where JSON has one; a sealed value is a text too."""
    from millstream.eventsourcing.personal import personal_fields

    personal = {one.name for one in personal_fields(kind)}
    try:
        for field in schema_from_class(kind):
            yield field.name, Scalar.STRING if field.name in personal else field.type
    except BadSchema as error:
        if "at least one field" not in str(error):
            logger.warning("jobs do not see the data of event %s: %s", kind.__name__, error)


def _merged(name: str, found: list[tuple[str, DataType]]) -> DataType | None:
    merged = found[0][1]
    for event, other in found[1:]:
        if other == merged:
            continue
        wider = WIDER.get(frozenset({merged, other}))
        if wider is None:
            logger.warning(
                "jobs do not see data.%s: it is %s in event %s and %s in event %s",
                *(name, merged, found[0][0], other, event),
            )
            return None
        merged = wider
    return merged
