"""Where a run of a capture begins: what former runs kept, or the database's position of now.

Tables that are new since are added to what the database hands over; their versions and topics are
there before the first change. A request to reload all begins anew: what the database keeps for
the capture is dropped and made again, and every table is loaded. That is the way out when changes
were lost.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.capture.captures_topic import CapturesTopic
from millstream.capture.change import CapturedTable
from millstream.capture.change_writer import ChangeWriter
from millstream.capture.definition import CaptureDefinition
from millstream.capture.load.plan import Phase, TableLoad, load_to_json
from millstream.capture.log_writer import LogWriter
from millstream.capture.position_record import (
    CaptureRecords,
    Note,
    Position,
    is_asked_anew,
    load_note,
    position_note,
)
from millstream.capture.source import Source, require_fit

logger = logging.getLogger(__name__)

NOT_TO_BE_LOADED = load_to_json(TableLoad(phase=Phase.DONE))


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a capture has open."""

    definition: CaptureDefinition
    records: CaptureRecords
    source: Source
    writer: LogWriter
    captures: CapturesTopic
    changes: ChangeWriter


def begin(run: Run, status: Note) -> Position:
    """The position, which is kept now, with the status: `run.records.loads` says what is still to
    be loaded."""
    known = set(run.records.tables)
    position = run.records.position
    notes: list[Note] = []
    if position is None or is_asked_anew(run.records.control, position):
        notes = forget_loads(run)
        position = first_position(run)
    else:
        add_new_tables(run, known)
        notes = forget_lost_topics(run)
    notes += introduce_tables(run, known)
    run.writer.note([*notes, position_note(run.definition.name, position), status])
    run.writer.commit()
    return position


def first_position(run: Run) -> Position:
    require_fit(run.definition.name, run.source.check(), cannot="begin")
    if run.records.position is not None:
        run.source.drop()
    return Position(resume=run.source.prepare(), reloads=dict(run.records.control.reloads))


def forget_loads(run: Run) -> list[Note]:
    forgotten = list(run.records.loads)
    run.records.loads.clear()
    return [load_note(run.definition.name, table, None) for table in forgotten]


def forget_lost_topics(run: Run) -> list[Note]:
    """A topic that somebody has deleted holds no rows any more: its table is loaded anew."""
    if run.definition.load == "none":
        return []
    there = [table for table in run.source.tables() if table.name in run.records.loads]
    lost = [table for table in there if not run.writer.has_topic(table.topic)]
    for table in lost:
        logger.warning("%s is gone: %s is loaded anew", table.topic, table.name)
        del run.records.loads[table.name]
    return [load_note(run.definition.name, table.name, None) for table in lost]


def add_new_tables(run: Run, known: set[str]) -> None:
    new = [table.name for table in run.source.tables() if table.name not in known]
    if new:
        run.source.add_tables(new)


def introduce_tables(run: Run, known: set[str]) -> list[Note]:
    """Versions and topics; and that they need no load, if they are to have none."""
    tables = run.source.tables()
    for table in tables:
        run.changes.know(table)
    notes = run.changes.take_notes()
    if run.definition.load == "none":
        notes += leave_unloaded(run, [table for table in tables if table.name not in known])
    return notes


def leave_unloaded(run: Run, tables: Sequence[CapturedTable]) -> list[Note]:
    names = [table.name for table in tables]
    run.records.loads.update(dict.fromkeys(names, NOT_TO_BE_LOADED))
    return [load_note(run.definition.name, name, NOT_TO_BE_LOADED) for name in names]
