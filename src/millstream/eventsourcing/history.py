"""The history of a stream for people: what happened, when, who did it and why. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millstream.eventsourcing.event_types import EventTypes
from millstream.eventsourcing.replay import OWN_PREFIX, SHUNNED, shunned_in
from millstream.eventsourcing.stored_event import StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event of a stream, and what is known of how it came about.

    `event` is an instance of its class, as the newest version has it. `shunned`: why it does not
    count, if it does not; an empty text where no reason was given.
    """

    version: int
    id: str
    at: datetime
    type: str
    event: Any
    command: str | None
    command_id: str | None
    by: str | None
    why: str | None
    causation: str | None
    correlation: str | None
    meta: Mapping[str, Any]
    shunned: str | None = None

    @property
    def is_shunned(self) -> bool:
        return self.shunned is not None


def happenings(events: Iterable[StoredEvent], types: EventTypes) -> list[Happening]:
    """In their order. An event can be shunned by a later one."""
    stored = list(events)
    shunned = {
        one.event: one.why for one in (shunned_in(each) for each in stored if each.type == SHUNNED)
    }
    return [_happening(one, types, shunned.get(one.id)) for one in stored]


def _happening(stored: StoredEvent, types: EventTypes, shunned: str | None) -> Happening:
    meta = stored.meta
    return Happening(
        version=stored.version,
        id=stored.id,
        at=stored.at,
        type=stored.type,
        event=_event(stored, types),
        command=meta.get("command"),
        command_id=None if stored.command is None else stored.command.id,
        by=meta.get("by"),
        why=meta.get("why"),
        causation=meta.get("causation"),
        correlation=meta.get("correlation"),
        meta=meta,
        shunned=shunned,
    )


def _event(stored: StoredEvent, types: EventTypes) -> Any:
    if stored.type == SHUNNED:
        return shunned_in(stored)
    return None if stored.type.startswith(OWN_PREFIX) else types.decode(stored)
