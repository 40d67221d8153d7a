"""Decisions of one transaction, one after the other, over what the partition's writer knows. Pure.

Each sees the events of those before it, though none is committed yet. What it yields gets its
numbers, its hash and its bytes here. Commit, and `settle` makes it part of the state; or drop the
staging, and nothing has happened.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain
from typing import Any

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.event_index import EventIndex
from millstream.eventsourcing.partition_state import PartitionState, SeenCommand
from millstream.eventsourcing.placement import stream_key
from millstream.eventsourcing.query import Condition, ConditionFailed, Query
from millstream.eventsourcing.stored_event import (
    Command,
    NewEvent,
    StoredEvent,
    are_different,
    decode_event,
    encode_event,
)

# With its key and headers a record then fits into what every broker takes unless it is told
# otherwise (1,048,588 bytes).
EVENT_BYTES_MAX = 1_000_000
COMMAND_ID_LENGTH_MAX = 1_000
EVENTS_OF_A_DECISION_MAX = 10_000
# Levels of JSON in a record: a reader has room for some hundreds, fewer where it is called deep.
EVENT_DEPTH_MAX = 100

NO_META: Mapping[str, Any] = {}

Decision = Callable[["StreamHead"], Iterable[NewEvent] | None]
ReadEvents = Callable[[Sequence[int]], Iterator[StoredEvent]]


class WrongVersion(Rejected):
    def __init__(self, *, stream: str, expected: int, found: int) -> None:
        super().__init__(
            f"stream {stream} is at version {found}, and {expected} was expected: someone was "
            "faster. Read it again, and decide again"
        )
        self.stream, self.expected, self.found = stream, expected, found


class BadExpectation(Rejected):
    """True is 1 for Python, and "1" equals no version: neither is what somebody meant."""

    def __init__(self, *, expect: object) -> None:
        super().__init__(
            f"expect={expect!r} is not a version of a stream: give a whole number from 0 on (0: "
            "it is new), or leave it out"
        )
        self.expect = expect


def require_version(expect: object) -> None:
    if expect is not None and (type(expect) is not int or expect < 0):
        raise BadExpectation(expect=expect)


class EventIdReused(Rejected):
    def __init__(self, *, id: str, stream: str) -> None:
        super().__init__(
            f"stream {stream}: an event with the id {id!r} is stored already, or comes twice. "
            "Nothing of the command was appended. Give each event an id of its own, or none"
        )
        self.id, self.stream = id, stream


class CommandIdReused(Rejected):
    def __init__(self, *, id: str, stream: str, seen: SeenCommand) -> None:
        other = f"of stream {seen.stream}" if seen.stream != stream else "with other arguments"
        super().__init__(
            f"command id {id!r} on stream {stream}: it was that of another command already, "
            f"{other}. Give each command an id of its own; only a retry has the same"
        )
        self.id, self.stream, self.seen = id, stream, seen


class EventTooLarge(Rejected):
    def __init__(self, *, stream: str, type: str, size_bytes: int) -> None:
        super().__init__(
            f"stream {stream}: an event {type} has {size_bytes:,} bytes, and may have "
            f"{EVENT_BYTES_MAX:,}. Keep what is large elsewhere, and name it in the event"
        )
        self.stream, self.type, self.size_bytes = stream, type, size_bytes


class UnfitEvent(Rejected):
    def __init__(self, *, stream: str, reason: str) -> None:
        super().__init__(f"stream {stream}: {reason}. Nothing of the command was appended")
        self.stream, self.reason = stream, reason


class Wish(msgspec.Struct, frozen=True):
    """A decision that someone asks for, and under which terms."""

    stream: str
    decision: Decision
    expect: int | None = None
    condition: Condition | None = None
    command: Command | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        require_version(self.expect)


class Decided(msgspec.Struct, frozen=True):
    """What became of a wish: the stream's version and the partition's `seq` after it, and the ids
    of its events; those of a repeat are in the log, unless they are gone."""

    stream: str
    version: int
    seq: int
    ids: tuple[str, ...] = ()
    repeats: SeenCommand | None = None


class StreamHead:
    """What a decision sees of its stream: all that is before it, staged events included.

    `term` changes when staged events were dropped: what was folded from events in another term
    may never have happened.
    """

    __slots__ = ("_staging", "hash", "seq", "stream", "term", "version")

    def __init__(self, stream: str, version: int, hash: bytes, staging: "Staging") -> None:
        self.stream, self.version, self.hash = stream, version, hash
        self.seq, self.term = staging.seq, staging.term
        self._staging = staging

    def events(self, after: int = 0) -> Iterator[StoredEvent]:
        """Of the stream, from the version behind `after` on."""
        return self._staging.events_of(self.stream, after)

    def query(self, query: Query, after: int = 0) -> Iterator[StoredEvent]:
        """Of all streams of the partition that the query matches, with `seq` above `after`."""
        return self._staging.matching(query, after)

    def of(self, stream: str) -> "StreamHead":
        """That of another stream of the same partition, for who yields events of several."""
        return StreamHead(stream, *self._staging.head(stream), self._staging)


class Staging:
    """`records` are streams and values, in order; `clock_behind` is how far the last event's time
    was ahead of the clock. The state must not change meanwhile, or what
    is staged is of no use: the writer that staged it was fenced then."""

    def __init__(
        self,
        state: PartitionState,
        *,
        read: ReadEvents,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        term: int = 0,
    ) -> None:
        self._state, self._read, self._now, self._new_id = state, read, now, new_id
        self.term = term
        self.first_seq, self.end = state.seq + 1, state.end
        self.records: list[tuple[str, bytes]] = []
        self.size_bytes = 0
        self.clock_behind = timedelta()
        self._index = EventIndex()
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._commands: dict[str, tuple[Command, SeenCommand]] = {}
        self._ids: dict[str, None] = {}
        self._at, self._last_hash = state.at, state.last_hash

    @property
    def first_event(self) -> StoredEvent:
        return decode_event(self.records[0][1], place=f"event {self.first_seq}, staged")

    @property
    def seq(self) -> int:
        return self.first_seq + len(self.records) - 1

    def decide(self, wish: Wish) -> Decided:
        """Raises what the decision raises, or why it is refused; nothing of it is staged then."""
        stream, command = wish.stream, wish.command
        version, before = self.head(stream)
        if command is not None and (seen := self._seen(command, stream)):
            return Decided(stream, self._version_at(seen), seen.last_seq, repeats=seen)
        if wish.expect is not None and wish.expect != version:
            raise WrongVersion(stream=stream, expected=wish.expect, found=version)
        if wish.condition is not None:
            self._check(wish.condition, stream)
        events = self._taken(wish, wish.decision(StreamHead(stream, version, before, self)))
        if not events:
            return Decided(stream, version, self.seq)
        ids = self._stage(wish, events)
        return Decided(stream, self._heads.get(stream, (version,))[0], self.seq, ids)

    def head(self, stream: str) -> tuple[int, bytes]:
        """Version and hash."""
        known = self._heads.get(stream)
        return known or (self._state.version(stream), self._state.hash_of(stream))

    def events_of(self, stream: str, after: int) -> Iterator[StoredEvent]:
        kept = self._state.index.of_stream(stream, after=after, upto=None, position=None)
        staged = self._index.streams.get(stream, ())
        skipped = max(0, after - self._state.version(stream))
        new = self._staged(staged[skipped:])
        return chain(self._read(kept), new) if kept else new

    def events_at(self, seqs: Sequence[int]) -> Iterator[StoredEvent]:
        """Of these numbers, which rise."""
        kept = [seq for seq in seqs if seq < self.first_seq]
        return chain(self._read(kept), self._staged(seqs[len(kept) :]))

    def matching(self, query: Query, after: int) -> Iterator[StoredEvent]:
        kept = list(self._state.index.matching(query, after=after, upto=self.first_seq - 1))
        staged = self._staged_matching(query, after)
        return chain(self._read(kept), self._staged(staged))

    def settle(self, offset: int) -> None:
        """It is committed: the first record is at `offset`, the others behind it, then a marker."""
        state = self._state
        if not self.records:
            return
        state.index.extend(self._index)
        state.runs.add(self.first_seq, offset)
        state.hashes.update({stream: hash for stream, (_, hash) in self._heads.items()})
        for command, seen in self._commands.values():
            state.note_command(command, seen.stream, seen.first_seq, seen.length)
        state.note_events(self._ids)
        state.recent.add(self.seq, [value for _, value in self.records])
        state.seq, state.at, state.last_hash = self.seq, self._at, self._last_hash
        state.end = max(state.end, offset + len(self.records) + 1)

    def _seen(self, command: Command, stream: str) -> SeenCommand | None:
        staged = self._commands.get(command.id)
        seen = staged[1] if staged else self._state.commands.get(command.id)
        if seen is not None and (seen.stream != stream or are_different(seen.print, command.print)):
            raise CommandIdReused(id=command.id, stream=stream, seen=seen)
        if seen is None and len(command.id) > COMMAND_ID_LENGTH_MAX:
            reason = f"a command id has {len(command.id):,} letters, of {COMMAND_ID_LENGTH_MAX:,}"
            raise UnfitEvent(stream=stream, reason=reason)
        return seen

    def _version_at(self, seen: SeenCommand) -> int:
        """Of the stream after the command: not read from its events, which may be gone."""
        kept = self._state.index.version_at(seen.stream, seen.last_seq)
        staged = self._index.streams.get(seen.stream, ())
        return kept + bisect_right(staged, seen.last_seq)

    def _check(self, condition: Condition, stream: str) -> None:
        query, after = condition.fail_if, condition.after
        kept = self._state.index.matching(query, after=after, upto=self.first_seq - 1)
        for seq in chain(kept, self._staged_matching(query, after)):
            raise ConditionFailed(stream=stream, condition=condition, seq=seq)

    def _staged_matching(self, query: Query, after: int) -> Iterator[int]:
        if self.records:
            yield from self._index.matching(query, after=after, upto=self.seq)

    def _taken(self, wish: Wish, found: Iterable[NewEvent] | None) -> list[NewEvent]:
        stream, events = wish.stream, [] if found is None else list(found)
        if len(events) > EVENTS_OF_A_DECISION_MAX:
            limit = f"{EVENTS_OF_A_DECISION_MAX:,}"
            reason = f"a decision has {len(events):,} events, of {limit} that it may have"
            raise UnfitEvent(stream=stream, reason=reason)
        given: set[str] = set()
        for event in events:
            _check_event(event, stream)
            if event.id:
                self._require_new(event.id, given, stream)
            if event.stream is not None:
                stream_key(event.stream)
                if wish.command is not None:
                    reason = "a command with an id is of one stream"
                    raise UnfitEvent(stream=stream, reason=reason)
        return events

    def _require_new(self, id: str, given: set[str], stream: str) -> None:
        if id in given or id in self._ids or id in self._state.event_ids:
            raise EventIdReused(id=id, stream=stream)
        given.add(id)

    def _stage(self, wish: Wish, events: Sequence[NewEvent]) -> tuple[str, ...]:
        """All of them, or none if one does not fit; returns their ids."""
        seq, at, meta = self.seq, self._moment(), wish.meta or NO_META
        staged: list[tuple[str, bytes]] = []
        ids = []
        heads: dict[str, tuple[int, bytes]] = {}
        for number, event in enumerate(events, seq + 1):
            id, stream = event.id or self._new_id(), event.stream or wish.stream
            version, before = heads.get(stream) or self.head(stream)
            stored = StoredEvent(
                seq=number,
                stream=stream,
                version=version + 1,
                type=event.type,
                type_version=event.type_version,
                id=id,
                at=at,
                data=_checked_data(event, stream),
                tags=event.tags,
                command=wish.command,
                meta=meta,
            )
            value, before = _encoded(stored, before)
            heads[stream] = version + 1, before
            staged.append((stream, value))
            ids.append(id)
        self._keep(staged, events, heads)
        self._ids.update(dict.fromkeys(ids))
        self._last_hash = before
        if wish.command is not None:
            seen = SeenCommand(wish.command.print, wish.stream, seq + 1, len(events))
            self._commands[wish.command.id] = wish.command, seen
        return tuple(ids)

    def _keep(
        self,
        staged: Sequence[tuple[str, bytes]],
        events: Sequence[NewEvent],
        heads: Mapping[str, tuple[int, bytes]],
    ) -> None:
        seq = self.seq
        for (stream, value), event in zip(staged, events, strict=True):
            seq += 1
            self._index.add(seq, stream, event.type, event.tags)
            self.size_bytes += len(value)
        self.records += staged
        self._heads.update(heads)

    def _moment(self) -> datetime:
        """Time does not go back in a partition, whoever's clock it is: as-of reads rely on it."""
        now = self._now()
        if self._at is None or now >= self._at:
            self._at = now
        else:
            self.clock_behind = max(self.clock_behind, self._at - now)
        return self._at

    def _staged(self, seqs: Iterable[int]) -> Iterator[StoredEvent]:
        for seq in seqs:
            yield decode_event(self.records[seq - self.first_seq][1], place=f"event {seq}, staged")


def _check_event(event: NewEvent, stream: str) -> None:
    """What is of another type would be written, and never read again."""
    if not isinstance(event, NewEvent):
        raise UnfitEvent(stream=stream, reason=f"{event!r} is no NewEvent")
    is_named = event.type and isinstance(event.type, str) and isinstance(event.type_version, int)
    is_tagged = event.tags == () or (
        isinstance(event.tags, tuple) and all(isinstance(tag, str) for tag in event.tags)
    )
    if not is_named or not is_tagged or not (event.id is None or isinstance(event.id, str)):
        reason = f"{event!r}: types, tags and ids are texts, versions of types are numbers"
        raise UnfitEvent(stream=stream, reason=reason)


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _checked_data(event: NewEvent, stream: str) -> msgspec.Raw:
    """What is not JSON would spoil the log for every reader."""
    try:
        data = bytes(event.data)
        _decode_object(data)
        data.decode()  # which msgspec does not do
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError) as error:
        reason = f"the data of an event {event.type} are no JSON object ({error})"
        raise UnfitEvent(stream=stream, reason=reason) from None
    return msgspec.Raw(msgspec.json.format(data, indent=-1) if b"\n" in data else data)


def _encoded(event: StoredEvent, before: bytes) -> tuple[bytes, bytes]:
    try:
        value, hash = encode_event(event, before)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        reason = f"an event {event.type} cannot be written as JSON ({error})"
        raise UnfitEvent(stream=event.stream, reason=reason) from None
    if len(value) > EVENT_BYTES_MAX:
        raise EventTooLarge(stream=event.stream, type=event.type, size_bytes=len(value))
    if value.count(b"[") + value.count(b"{") > EVENT_DEPTH_MAX and _depth(value) > EVENT_DEPTH_MAX:
        reason = f"an event {event.type} has more than {EVENT_DEPTH_MAX} levels of JSON"
        raise UnfitEvent(stream=event.stream, reason=reason)
    return value, hash


_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")


def _depth(value: bytes) -> int:
    steps = (1 if one in b"[{" else -1 for one in _BRACKETS.findall(_TEXTS.sub(b"", value)))
    return max(accumulate(steps))
