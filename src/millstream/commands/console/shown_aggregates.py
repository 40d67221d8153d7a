"""The aggregates of an App, as the console asks for them.

Events are shown as they are stored: what is personal stays sealed. A state is the application's
own, opened where this process has the keys.
"""

import json
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from millstream.aggregates import AppEvents
from millstream.web.console.facts import AggregateSeen, EventSeen, StreamHistory, StreamSeen

if TYPE_CHECKING:
    from millstream.eventsourcing.stored_event import StoredEvent


class ShownAggregates:
    """Thread-safe. Opens the store when somebody first looks; takes no partition over."""

    def __init__(self, events: AppEvents) -> None:
        self._events = events

    def kinds(self) -> Sequence[AggregateSeen]:
        return [
            AggregateSeen(
                name=name,
                topic=self._events.topic,
                events=tuple(sorted(map(_name_of, one.plan.kinds))),
            )
            for name, one in sorted(self._events.declared.items())
        ]

    def streams(self, kind: str, *, starts_with: str, limit: int) -> Sequence[StreamSeen]:
        if kind not in self._events.declared:
            return ()
        prefix = f"{kind}:"
        found = self._events.store().streams(prefix + starts_with)
        return [
            StreamSeen(id=stream.removeprefix(prefix), version=version)
            for stream, version in sorted(islice(found, limit))
        ]

    def history(
        self, kind: str, stream: str, *, version: int | None, limit: int
    ) -> StreamHistory | None:
        all_of_kind = self._events.declared.get(kind)
        if all_of_kind is None or not stream or stream not in all_of_kind:
            return None
        store, name = all_of_kind.store, all_of_kind.stream(stream)
        newest = store.version(name)
        shown = newest if version is None else max(0, min(version, newest))
        events = list(store.read(name, after=max(0, newest - limit), upto=newest))
        return StreamHistory(
            id=stream,
            version=shown,
            newest=newest,
            events=[_seen(event) for event in reversed(events)],
            state=_plain(all_of_kind.state(stream, version=shown)),
        )


def _name_of(kind: type) -> str:
    from millstream.eventsourcing.declared_event import facts_of

    facts = facts_of(kind)
    return kind.__name__ if facts is None else facts.name


def _seen(event: "StoredEvent") -> EventSeen:
    return EventSeen(
        version=event.version,
        type=event.type,
        at_ms=round(event.at.timestamp() * 1000),
        data=json.loads(bytes(event.data)),
        facts={"id": event.id, **event.meta},
    )


def _plain(state: Any) -> Any:
    """What JSON has words for; whatever else an application keeps is told by its own text."""
    import msgspec

    from millstream.eventsourcing.aggregate import state_in

    def plain(value: Any) -> Any:
        try:
            return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
        except (TypeError, ValueError):  # keys that are no text, or nested without an end
            return str(value)

    return {name: plain(value) for name, value in state_in(state).items()}
