"""What aggregates ask of sealing, answered by a keyring: events, states in memory, snapshots.

The joint between `event_types.py`, which knows what is personal, and `sealing.py`, which knows how
to keep it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from millstream.eventsourcing import sealing
from millstream.eventsourcing.personal import PersonalField
from millstream.eventsourcing.sealing import Keys


class MoreKeys(Keys, Protocol):
    """What a keyring offers besides."""

    def seal_passing(self, data: bytes, *, place: str) -> str: ...

    def open_passing(self, text: str, *, place: str) -> bytes | None: ...

    def print_of(self, data: bytes) -> str: ...


class KeyedSealing:
    """`Sealing` with the keys of a keyring."""

    def __init__(self, keys: MoreKeys) -> None:
        self._keys = keys

    def seal(
        self,
        data: Mapping[str, Any],
        fields: tuple[PersonalField, ...],
        *,
        stream: str,
        event_id: str,
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        return sealing.seal_fields(data, fields, self._keys, stream=stream, event_id=event_id)

    def open(
        self, data: Mapping[str, Any], *, stream: str, event_id: str
    ) -> tuple[dict[str, Any], frozenset[str]]:
        return sealing.open_fields(data, self._keys, stream=stream, event_id=event_id)

    def are_kept(self, key_ids: frozenset[str]) -> bool:
        """Whether what they opened may stay in memory."""
        return all(self._keys.key_of(one) is not None for one in key_ids)

    def seal_snapshot(self, state: bytes, key_ids: frozenset[str], *, place: str) -> bytes | None:
        return sealing.seal_snapshot(state, key_ids, self._keys, place=place)

    def open_snapshot(self, sealed: bytes, *, place: str) -> bytes | None:
        return sealing.open_snapshot(sealed, self._keys, place=place)

    def seal_command(self, arguments: bytes, *, place: str) -> str:
        """Arguments that wait in a topic: the next erasure closes them, as nobody knows whose they
        are before the command has run."""
        return self._keys.seal_passing(arguments, place=place)

    def open_command(self, sealed: str, *, place: str) -> bytes | None:
        """None if an erasure came between: it must be sent again."""
        return self._keys.open_passing(sealed, place=place)

    def print_of(self, call: bytes) -> str:
        """Of a command and its arguments, kept with its events for ever, and of no use to anybody
        after the next erasure."""
        return self._keys.print_of(call)
