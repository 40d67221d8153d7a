"""An event store in a list: the face of EventStore that aggregates use, and no broker.

`drop_next`: so many commits are lost, as if the writer was fenced; decisions run again then.
`refuse_next`: the next one is run, and comes to nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.partition_state import SeenCommand
from millstream.eventsourcing.staging import CommandIdReused, WrongVersion
from millstream.eventsourcing.stored_event import (
    Command,
    NewEvent,
    Receipt,
    StoredEvent,
    are_different,
)

BEGINNING = datetime(2026, 11, 18, tzinfo=UTC)


class CommitRefused(Exception):
    """What was decided was not stored."""


@dataclass
class MemoryHead:
    stream: str
    version: int
    store: "MemoryEvents"

    def events(self, after: int = 0) -> Iterator[StoredEvent]:
        return self.store.read(self.stream, after=after)


class MemoryEvents:
    topic = "memory.events"
    partitions = 1

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.drop_next = 0
        self.refuse_next = False
        self.reads = 0
        self.gone_before: dict[str, int] = {}  # what retention took
        self._commands: dict[str, tuple[Command, Receipt]] = {}

    def submit(
        self,
        stream: str,
        decision: Callable[[Any], list[NewEvent]],
        *,
        expect: int | None = None,
        command: Command | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> "Future[Receipt]":
        future: Future[Receipt] = Future()
        try:
            future.set_result(self._decide(stream, decision, expect, command, meta or {}))
        except Exception as error:
            future.set_exception(error)
        return future

    def _decide(
        self,
        stream: str,
        decision: Callable[[Any], list[NewEvent]],
        expect: int | None,
        command: Command | None,
        meta: Mapping[str, Any],
    ) -> Receipt:
        version = self.version(stream)
        if command is not None and command.id in self._commands:
            known, repeat = self._commands[command.id]
            if repeat.stream != stream or are_different(known.print, command.print):
                seen = SeenCommand(known.print, repeat.stream, 1, 1)
                raise CommandIdReused(id=command.id, stream=stream, seen=seen)
            return repeat
        if expect is not None and expect != version:
            raise WrongVersion(stream=stream, expected=expect, found=version)
        made = list(decision(MemoryHead(stream, version, self)))
        while self.drop_next:
            self.drop_next -= 1
            made = list(decision(MemoryHead(stream, version, self)))
        if self.refuse_next:
            self.refuse_next = False
            raise CommitRefused
        return self._store(stream, made, command, meta)

    def _store(
        self, stream: str, made: list[NewEvent], command: Command | None, meta: Mapping[str, Any]
    ) -> Receipt:
        for new in made:
            seq = len(self.events) + 1
            stored = StoredEvent(
                seq=seq,
                stream=stream,
                version=self.version(stream) + 1,
                type=new.type,
                type_version=new.type_version,
                id=new.id or f"id-{seq}",
                at=BEGINNING + timedelta(minutes=seq),
                data=msgspec.Raw(new.data),
                tags=new.tags,
                command=command,
                meta=meta,
            )
            self.events.append(stored)
        ids = tuple(new.id or "" for new in made)
        if command is not None and made:
            self._commands[command.id] = command, self._receipt(stream, ids, is_repeat=True)
        return self._receipt(stream, ids, is_repeat=False)

    def _receipt(self, stream: str, ids: tuple[str, ...], *, is_repeat: bool) -> Receipt:
        return Receipt(
            topic=self.topic,
            partition=0,
            offset=len(self.events) - 1,
            stream=stream,
            version=self.version(stream),
            seq=len(self.events),
            events=ids,
            is_repeat=is_repeat,
        )

    def append(self, stream: str, events: list[NewEvent]) -> Receipt:
        """What another program wrote."""
        return self._store(stream, events, None, {})

    def read(
        self,
        stream: str,
        *,
        after: int = 0,
        upto: int | None = None,
        at: datetime | None = None,
    ) -> Iterator[StoredEvent]:
        first = max(after + 1, self.gone_before.get(stream, 0))
        for event in list(self.events):
            if event.stream != stream or event.version < first:
                continue
            if (upto is None or event.version <= upto) and (at is None or event.at <= at):
                self.reads += 1
                yield event

    def version(self, stream: str) -> int:
        return sum(event.stream == stream for event in self.events)

    def streams(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        names = dict.fromkeys(event.stream for event in self.events)
        return ((name, self.version(name)) for name in names if name.startswith(prefix))

    @property
    def as_store(self) -> EventStore:
        """For who asks for the real one, by its type."""
        return cast(EventStore, self)


class MemorySnapshots:
    """The face of SnapshotTopic, in a dictionary."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def find(self, stream: str) -> bytes | None:
        return self.values.get(stream)

    def put(self, stream: str, value: bytes) -> None:
        self.values[stream] = value
