"""The kinds of events of an aggregate, and their way to JSON and back. Pure.

What is stored is the neutral name and the version of `declared_event.py`. An event is read back
before it is stored, so nothing gets into a stream that cannot be got out of it; and what is folded
is what was read back. Old versions are lifted on the way (`upcasting.py`).
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Final, Protocol, cast, get_type_hints

import msgspec

from millstream.base.declared import BadDeclaration
from millstream.base.errors import Corrupt, MillstreamError, Rejected
from millstream.base.near_names import there_are
from millstream.eventsourcing.declared_event import Data, EventFacts, facts_of, shown
from millstream.eventsourcing.personal import Forgotten, PersonalField, personal_fields
from millstream.eventsourcing.sealing import PREFIX, check_plain
from millstream.eventsourcing.stored_event import NewEvent, StoredEvent
from millstream.eventsourcing.untold import cause_of, cause_to_chain, reason_of

KeyIds = frozenset[str]
Opened = tuple[Any, KeyIds]
NO_KEYS: Final[KeyIds] = frozenset()
_SEALED: Final = PREFIX.encode()  # nothing in it is escaped in JSON


class Sealing(Protocol):
    """Keeps what is personal in an event from all who have not its key."""

    def seal(
        self, data: Data, fields: tuple[PersonalField, ...], *, stream: str, event_id: str
    ) -> tuple[Data, tuple[str, ...]]:
        """The data as it is stored, and the tags by which it is found."""

    def open(self, data: Data, *, stream: str, event_id: str) -> tuple[Data, KeyIds]:
        """The data as it was, FORGOTTEN where a key is gone; the ids of the keys that opened it."""

    def are_kept(self, key_ids: KeyIds) -> bool:
        """Whether all of these keys are there still: what they opened may be kept in memory."""

    def seal_snapshot(self, state: bytes, key_ids: KeyIds, *, place: str) -> bytes | None:
        """None if one of the keys is gone: then it must not be kept."""

    def open_snapshot(self, sealed: bytes, *, place: str) -> bytes | None:
        """None if one of its keys is gone."""

    def seal_command(self, arguments: bytes, *, place: str) -> str:
        """The arguments of a command, on their way over a topic."""

    def open_command(self, sealed: str, *, place: str) -> bytes | None:
        """None if somebody was forgotten since."""

    def print_of(self, call: bytes) -> str:
        """A hash of a command and its arguments that cannot be tried out."""


class NotAnEvent(Rejected):
    def __init__(self, *, found: object) -> None:
        super().__init__(
            f"{_kind_of(found)} is no event: a command yields instances of classes that are marked "
            "with @event"
        )
        self.found = _kind_of(found)


class EventDoesNotFit(Rejected):
    """What was given, not what is stored: nothing was written."""

    def __init__(self, *, type: str, reason: str) -> None:
        super().__init__(
            f"an event {type} was not stored, because it could not be read again: {reason}. Give "
            "it values of the types that its class declares"
        )
        self.type, self.reason = type, reason


class TimeWithoutZone(Rejected):
    """Nobody could say later which moment it was."""

    def __init__(self, *, type: str, field: str) -> None:
        super().__init__(
            f"an event {type} was not stored: its {field} is a time without a zone. Give it one, "
            "datetime(..., tzinfo=UTC); or declare the field as a text"
        )
        self.type, self.field = type, field


class UnknownEventType(Corrupt):
    def __init__(self, *, stream: str, version: int, type: str, known: Iterable[str]) -> None:
        super().__init__(
            f"stream {stream}, version {version}: this program knows no event {type!r} (but "
            f"{there_are(sorted(known))}). Run the version of the program that does, or declare it "
            f'with @event(name="{type}")'
        )
        self.stream, self.version, self.type = stream, version, type


class UnknownEventVersion(Corrupt):
    def __init__(
        self, *, stream: str, version: int, type: str, type_version: int, known: int
    ) -> None:
        super().__init__(
            f"stream {stream}, version {version}: its {type} is of version {type_version}, and "
            f"this program knows it up to {known}. Run a newer version of the program"
        )
        self.stream, self.version, self.type = stream, version, type
        self.type_version, self.known = type_version, known


class StoredDataDoesNotFit(Corrupt):
    def __init__(
        self, *, stream: str, version: int, type: str, type_version: int, reason: str
    ) -> None:
        super().__init__(
            f"stream {stream}, version {version}: the data of {type} (version {type_version}) does "
            f"not fit its class: {reason}. If the class has changed since, give it the next "
            "version and an @upcast from this one"
        )
        self.stream, self.version, self.type = stream, version, type
        self.type_version, self.reason = type_version, reason


class UpcastFailed(Corrupt):
    def __init__(
        self, *, stream: str, version: int, type: str, from_version: int, cause: str
    ) -> None:
        super().__init__(
            f"stream {stream}, version {version}: the @upcast of {type} from version "
            f"{from_version} failed: {cause}"
        )
        self.stream, self.version, self.type = stream, version, type
        self.from_version, self.cause = from_version, cause


@dataclass(frozen=True, slots=True)
class _Kind:
    """A class of events with what reads it."""

    made: type
    facts: EventFacts
    decode: Callable[[bytes | msgspec.Raw], Any]
    personal: tuple[PersonalField, ...]


class EventTypes:
    """The kinds of events that one aggregate has, or several. Their names differ."""

    def __init__(self, kinds: Iterable[type], *, sealing: Sealing | None = None) -> None:
        self.sealing = sealing
        self._by_name: dict[str, _Kind] = {}
        self._by_class: dict[type, _Kind] = {}
        self._encode = msgspec.json.Encoder().encode
        for kind in kinds:
            self._add(kind)

    def __iter__(self) -> Iterator[type]:
        return iter(self._by_class)

    def __contains__(self, kind: object) -> bool:
        return kind in self._by_class

    def __len__(self) -> int:
        return len(self._by_class)

    @property
    def has_personal(self) -> bool:
        return any(kind.personal for kind in self._by_class.values())

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def facts(self, kind: type) -> EventFacts:
        return self._by_class[kind].facts

    def kind(self, stored: StoredEvent) -> type:
        """The class of a stored event; raises UnknownEventType or UnknownEventVersion."""
        return self._known(stored).made

    def _add(self, kind: type) -> None:
        facts = facts_of(kind) if inspect.isclass(kind) else None
        if facts is None:
            raise BadDeclaration(f"{shown(kind)} is no event: mark it with @event")
        other = self._by_name.get(facts.name)
        if other is not None and other.made is not kind:
            raise BadDeclaration(
                f"two events with the name {facts.name}: {_path(other.made)} and {_path(kind)}. "
                'Give one of them another, @event(name="...")'
            )
        try:
            decode: Any = msgspec.json.Decoder(kind).decode
            personal = personal_fields(kind, facts.subject)
        except (TypeError, NameError) as error:
            raise BadDeclaration(f"event {facts.name}: {error}") from None
        self._by_name[facts.name] = self._by_class[kind] = _Kind(kind, facts, decode, personal)

    # --- to the store -------------------------------------------------------------------------

    def encode(self, found: object, *, stream: str, event_id: str) -> tuple[NewEvent, Opened]:
        """As it is stored, and as it will be read: fold that, so that replay gives the same."""
        kind = self._by_class.get(type(found))
        if kind is None:
            raise NotAnEvent(found=found)
        if (field := _without_zone(found)) is not None:
            raise TimeWithoutZone(type=kind.facts.name, field=field)
        try:
            data, tags = self._written(kind, found, stream=stream, event_id=event_id)
            read = self._read(kind, data, stream=stream, event_id=event_id)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            reason = reason_of(error, is_personal=self.has_personal)
            raise EventDoesNotFit(type=kind.facts.name, reason=reason) from None
        facts = kind.facts
        new = NewEvent(
            type=facts.name, data=data, type_version=facts.version, tags=tags, id=event_id
        )
        return new, read

    def _written(
        self, kind: _Kind, found: object, *, stream: str, event_id: str
    ) -> tuple[bytes, tuple[str, ...]]:
        if not kind.personal:
            return _checked_plain(self._encode(found)), ()
        plain = msgspec.to_builtins(found)
        kind.decode(self._encode(plain))  # what is sealed is not looked at any more
        sealing = self._sealing_of(kind)
        sealed, tags = sealing.seal(plain, kind.personal, stream=stream, event_id=event_id)
        return self._encode(sealed), tags

    # --- from the store -----------------------------------------------------------------------

    def decode(self, stored: StoredEvent) -> Any:
        return self.opened(stored)[0]

    def opened(self, stored: StoredEvent) -> Opened:
        """The event, and the ids of the keys that it took to read it."""
        kind = self._known(stored)
        try:
            if stored.type_version == kind.facts.version:
                return self._read(kind, stored.data, stream=stored.stream, event_id=stored.id)
            # Opened first: a step may move a value, and it is bound to the field that it was in.
            data, keys = self._unsealed(kind, stored.data, stream=stored.stream, event_id=stored.id)
            return _built(kind, self._lifted(kind.facts, data, stored)), keys
        except (msgspec.MsgspecError, TypeError) as error:
            raise StoredDataDoesNotFit(
                stream=stored.stream,
                version=stored.version,
                type=stored.type,
                type_version=stored.type_version,
                reason=reason_of(error, is_personal=self.has_personal),
            ) from None

    def _known(self, stored: StoredEvent) -> _Kind:
        kind = self._by_name.get(stored.type)
        if kind is None:
            raise UnknownEventType(
                stream=stored.stream,
                version=stored.version,
                type=stored.type,
                known=self._by_name,
            )
        if not 1 <= stored.type_version <= kind.facts.version:
            raise UnknownEventVersion(
                stream=stored.stream,
                version=stored.version,
                type=stored.type,
                type_version=stored.type_version,
                known=kind.facts.version,
            )
        return kind

    def _lifted(self, facts: EventFacts, data: Any, stored: StoredEvent) -> Data:
        for version in range(stored.type_version, facts.version):
            data = _stepped(facts, version, data, stored, is_personal=self.has_personal)
        return cast(Data, data)

    def _read(
        self, kind: _Kind, data: bytes | msgspec.Raw, *, stream: str, event_id: str
    ) -> Opened:
        if not kind.personal:
            return kind.decode(data), NO_KEYS
        opened, keys = self._unsealed(kind, data, stream=stream, event_id=event_id)
        return _built(kind, opened), keys

    def _unsealed(
        self, kind: _Kind, data: bytes | msgspec.Raw, *, stream: str, event_id: str
    ) -> tuple[Any, KeyIds]:
        sealed: Any = msgspec.json.decode(data)
        if not kind.personal or not isinstance(sealed, dict):
            return sealed, NO_KEYS
        return self._sealing_of(kind).open(sealed, stream=stream, event_id=event_id)

    def _sealing_of(self, kind: _Kind) -> Sealing:
        """Nothing personal is stored as it is."""
        if self.sealing is None:
            raise BadDeclaration(
                f"event {kind.facts.name} has personal fields, and there is no keyring to seal "
                "them with: use app.aggregates, or give sealing="
            )
        return self.sealing


def _checked_plain(data: bytes) -> bytes:
    if _SEALED in data:
        check_plain(msgspec.json.decode(data))
    return data


def _stepped(
    facts: EventFacts, version: int, data: Any, stored: StoredEvent, *, is_personal: bool
) -> Data:
    """One step, of data as it was stored or as the step before gave it."""
    try:
        lifted = facts.steps[version](data)
        if not isinstance(lifted, Mapping):
            raise TypeError(f"it gave {_kind_of(lifted)}, and not a dict")
        return dict(lifted)
    except MillstreamError:
        raise
    except Exception as error:
        raise UpcastFailed(
            stream=stored.stream,
            version=stored.version,
            type=stored.type,
            from_version=version,
            cause=cause_of(error, is_personal=is_personal),
        ) from cause_to_chain(error, is_personal=is_personal)


def _built(kind: _Kind, data: Any) -> Any:
    """The event of its data. What was forgotten has no type any more: it stands where it was."""
    forgotten = {} if not isinstance(data, dict) else _forgotten(data)
    if not forgotten:
        return kind.decode(msgspec.json.encode(data))
    hints = get_type_hints(kind.made, include_extras=True)
    known = {name: hint for name, hint in hints.items() if name in data and name not in forgotten}
    values = {
        name: msgspec.json.decode(msgspec.json.encode(data[name]), type=hint)
        for name, hint in known.items()
    }
    return kind.made(**values, **forgotten)


def _forgotten(data: Data) -> Data:
    return {name: value for name, value in data.items() if isinstance(value, Forgotten)}


def _kind_of(found: object) -> str:
    """Not what it is: that may be personal."""
    return f"the class {found.__name__}" if inspect.isclass(found) else f"a {type(found).__name__}"


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _without_zone(found: object, place: str = "") -> str | None:
    """Where a time without a zone is; None if there is none."""
    match found:
        case datetime():
            return place or "value" if found.tzinfo is None else None
        case list() | tuple() | set() | frozenset():
            parts: Iterable[tuple[object, object]] = (("", one) for one in found)
        case dict():
            parts = [*found.items(), *(("", key) for key in found)]
        case msgspec.Struct():
            parts = ((name, getattr(found, name)) for name in found.__struct_fields__)
        case _ if is_dataclass(found):
            parts = ((one.name, getattr(found, one.name, None)) for one in fields(found))
        case _:
            return None
    for name, one in parts:
        inner = f"{place}.{name}" if place and name else str(name or place)
        if (where := _without_zone(one, inner)) is not None:
            return where
    return None
