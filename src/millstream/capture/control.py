"""What an operator wants of captures: added, paused, resumed, reloaded, dropped; and how they are.

Writes wishes into `_captures`; the capture's runner takes them up within about a second, or when it
is next started. A capture that nobody runs is dropped by whoever runs it next (`runner.py`).
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from millstream.base.errors import Rejected
from millstream.base.log_clients import Client, Topics
from millstream.capture.captures_topic import (
    CapturesTopic,
    FollowedCaptures,
    make_captures_topic,
    write_wanted,
)
from millstream.capture.definition import CaptureDefinition
from millstream.capture.position_record import (
    ALL_TABLES,
    CaptureBook,
    CaptureRecords,
    Control,
    Note,
    control_note,
    definition_note,
)
from millstream.capture.table_names import is_named

# What the records of a capture's topics depend on.
FIXED = (
    *("mode", "topic_prefix", "encoding", "outbox"),
    *("format", "time_mode", "decimal_mode", "has_schemas"),
)


class NoSuchCapture(Rejected):
    def __init__(self, *, capture: str, known: Sequence[str]) -> None:
        there = f"There are: {', '.join(known)}" if known else "There is none"
        super().__init__(
            f"there is no capture {capture}. {there}. `millstream capture add {capture} URL "
            "--table NAME` makes it"
        )
        self.capture, self.known = capture, known


class CaptureThere(Rejected):
    def __init__(self, *, capture: str, differing: Sequence[str]) -> None:
        super().__init__(
            f"the capture {capture} is there already, with other {', '.join(differing)}: what is "
            f"in its topics was written so. `millstream capture show {capture}` shows it, "
            f"`millstream capture drop {capture}` makes room"
        )
        self.capture, self.differing = capture, differing


class TablesLeftOut(CaptureThere):
    def __init__(self, *, capture: str, tables: Sequence[str]) -> None:
        Rejected.__init__(
            self,
            f"the capture {capture} is there already, and has tables that are not named here: "
            f"{', '.join(tables)}. Name them too. A capture gives up a table only when it is "
            f"dropped as a whole: `millstream capture drop {capture}`",
        )
        self.capture, self.differing, self.tables = capture, ("tables",), tables


class NotItsTable(Rejected):
    def __init__(self, *, capture: str, table: str, tables: Sequence[str]) -> None:
        super().__init__(
            f"the capture {capture} has no table {table}. It has: {', '.join(tables) or 'none yet'}"
        )
        self.capture, self.table, self.tables = capture, table, tables


class CaptureControl:
    """Reads and writes `_captures` for commands and applications. Used by one thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        make_captures_topic(Topics(client))

    def log_id(self) -> str:
        """Which log this is, whatever its address."""
        return Topics(self._client).cluster_id()

    def captures(self) -> dict[str, CaptureRecords]:
        """All that are defined, as they are now."""
        return dict(self._book().defined())

    @contextlib.contextmanager
    def followed(self) -> Iterator[Callable[[], dict[str, CaptureRecords]]]:
        """For who asks again and again."""
        with contextlib.closing(FollowedCaptures(self._client)) as followed:
            yield lambda: dict(followed.look().defined())

    def capture(self, name: str) -> CaptureRecords:
        book = self._book()
        found = book.of(name)
        if found.definition is None:
            raise NoSuchCapture(capture=name, known=[one for one, _ in book.defined()])
        return found

    def add(self, definition: CaptureDefinition) -> None:
        """The same again changes nothing. One that is there gets more tables, another address or
        another limit; what its topics depend on stays."""
        there = self._book().of(definition.name)
        if there.definition is not None:
            _require_same_topics(there.definition, definition)
        notes = [definition_note(definition)]
        if there.control.is_dropped:
            notes.append(control_note(definition.name, Control()))
        self._write(notes)

    def add_tables(self, name: str, tables: Sequence[str]) -> None:
        definition = self._definition(name)
        new = [table for table in tables if table not in definition.tables]
        self._write([definition_note(replace(definition, tables=(*definition.tables, *new)))])

    def pause(self, name: str) -> None:
        self._wish(name, lambda control: replace(control, is_paused=True))

    def resume(self, name: str) -> None:
        self._wish(name, lambda control: replace(control, is_paused=False))

    def reload(self, name: str, table: str | None = None) -> None:
        """One table, by its full name or its last part; or all, from a new position."""
        full = ALL_TABLES if table is None else self._full_name(name, table)
        request = uuid.uuid4().hex
        self._wish(
            name, lambda control: replace(control, reloads={**control.reloads, full: request})
        )

    def drop(self, name: str) -> None:
        self._wish(name, lambda control: replace(control, is_dropped=True))

    def _book(self) -> CaptureBook:
        """As it is now: asked of the broker anew."""
        with contextlib.closing(CapturesTopic(self._client)) as captures:
            return captures.read_to_end()

    def _definition(self, name: str) -> CaptureDefinition:
        definition = self.capture(name).definition
        assert definition is not None
        return definition

    def _full_name(self, name: str, table: str) -> str:
        tables = list(self.capture(name).tables)
        for known in tables:
            if is_named(known, table):
                return known
        raise NotItsTable(capture=name, table=table, tables=tables)

    def _wish(self, name: str, change: Callable[[Control], Control]) -> None:
        self._write([control_note(name, change(self.capture(name).control))])

    def _write(self, notes: Sequence[Note]) -> None:
        write_wanted(self._client, notes)


def _require_same_topics(there: CaptureDefinition, new: CaptureDefinition) -> None:
    differing = [name for name in FIXED if getattr(there, name) != getattr(new, name)]
    if differing:
        raise CaptureThere(capture=there.name, differing=differing)
    if left_out := [table for table in there.tables if table not in new.tables]:
        raise TablesLeftOut(capture=there.name, tables=left_out)
