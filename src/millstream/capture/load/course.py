"""The course of all loads of a capture: what to read next, what arrived, what is due. Pure.

    asks()                   Settle, Split, Read, Scan: somebody does them, beside the stream
    arrived(ask, answer)     and brings the answer, between two transactions
    followed(transaction)    the stream goes on meanwhile; touched keys are noted
    due(position)            rows that may go out, with the state to keep with them
    committed()              what went out so far can be read

A table is split into ranges, which are read side by side; a range is a lane of chunks, which go out
in its order. When all have, the topic is swept: whatever key it holds that is older than the load
and was not written since, is of a row that is gone.

A table without a key has one chunk, all of it, and no way to tell rows apart. Its load is a
truncate, the rows, and once more those changes that are newer than the rows; if it begins anew, so
does the truncate. Who follows the topic from a truncate on has every row once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from millstream.capture.change import (
    DELETED,
    READ,
    TRUNCATED,
    CapturedTable,
    Change,
    Message,
    Transaction,
)
from millstream.capture.load.plan import Phase, TableLoad, load_to_json
from millstream.capture.load.progress import TableProgress
from millstream.capture.load.table_course import (
    Answer,
    Ask,
    Lane,
    LeftKeys,
    Parts,
    Read,
    Scan,
    Settle,
    Split,
    Sweep,
    TableCourse,
    lanes_of,
)
from millstream.capture.load.window import Again, Journal, Noted, Window
from millstream.capture.source import Chunk

CHUNK_ROWS_MAX: Final = 10_000
CHUNKS_AHEAD_MAX: Final = 6  # read and not yet out, or being read
RANGES_MAX: Final = 4  # of one table
SWEPT_MAX: Final = 10_000  # deletes at a time
WHOLE_TABLE: Final = (1 << 31) - 1  # rows of a table without a key


TopicKey = Callable[[CapturedTable, bytes], bytes]


def same_key(_table: CapturedTable, key: bytes) -> bytes:
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """To be written in one Kafka transaction with all that the stream handed over before it."""

    table: CapturedTable
    state: str  # JSON text, to be kept with it
    position: str | None = None  # where the database's log was when the rows were read
    changes: Sequence[Change] = ()
    again: Sequence[Again] = ()


class Course:
    """Used by one thread. `ends` flushes what was written and tells where a topic ends then.

    `topic_key`: how the topic has the key of a change.
    """

    def __init__(
        self,
        *,
        ends: Callable[[str], Sequence[int]],
        is_past: Callable[[str, str], bool],
        topic_key: TopicKey = same_key,
        chunk_rows_max: int = CHUNK_ROWS_MAX,
        chunks_ahead_max: int = CHUNKS_AHEAD_MAX,
        ranges_max: int = RANGES_MAX,
    ) -> None:
        self._ends, self._is_past, self._topic_key = ends, is_past, topic_key
        self._chunk_rows_max, self._chunks_ahead_max = chunk_rows_max, chunks_ahead_max
        self._ranges_max = ranges_max
        self._journal = Journal()
        self._is_settling = False
        self._courses: dict[str, TableCourse] = {}
        self._loading: frozenset[str] = frozenset()

    # What is to be loaded.

    def add(self, table: CapturedTable, load: TableLoad | None = None) -> None:
        """`load`: how far it is. Without one, and not known yet, it begins."""
        known = self._courses.get(table.name)
        if known is not None and load is None:
            known.table = table
        elif load is not None:
            self._courses[table.name] = TableCourse(table, load)
            self._look_again()
        else:
            self._begin(table)

    def add_gone(self, table: CapturedTable) -> None:
        """A table that is not there any more, and whose load did not end: no row of it is left."""
        if table.key:
            load = TableLoad(phase=Phase.DONE).truncated(self._ends(table.topic))
            self.add(table, load)
            self._courses[table.name].is_saved = False

    def reload(self, name: str) -> None:
        """From its start, whatever was loaded of it."""
        known = self._courses[name]
        self._leave(known)
        self._begin(known.table)

    def _begin(self, table: CapturedTable) -> None:
        self._journal.forget_keys(table.name)
        ends = self._ends(table.topic) if table.key else ()
        course = TableCourse(table, TableLoad.begun(ends))
        course.is_saved = False
        self._courses[table.name] = course
        self._look_again()

    def _leave(self, course: TableCourse) -> None:
        if course.sweep is not None and course.sweep.left is not None:
            course.sweep.left.close()
        course.sweep = None

    def close(self) -> None:
        for course in self._courses.values():
            self._leave(course)

    # What the stream hands over.

    def followed(self, transaction: Transaction) -> Iterator[Change | Message]:
        """The transaction's changes, noted as they pass; each is noted before it is written."""
        if self._loading:
            return self._noted(transaction)
        self._journal.pass_by()
        return self._passed_by(transaction)

    def _passed_by(self, transaction: Transaction) -> Iterator[Change | Message]:
        """While nothing is loaded."""
        table: CapturedTable | None = None
        for change in transaction.changes:
            if isinstance(change, Change):
                if change.table is not table:
                    table = self._known(change.table)
                if change.op == TRUNCATED and table.key:
                    self._truncate(None, table)
            yield change
        if transaction.reloads:
            self._reload(transaction.reloads)

    def _noted(self, transaction: Transaction) -> Iterator[Change | Message]:
        noted = self._journal.enter(transaction, self._loading)
        table: CapturedTable | None = None
        note: Callable[[int, Change], None] | None = None
        for seq, change in enumerate(transaction.changes):
            if isinstance(change, Change):
                if change.table is not table:
                    table = self._known(change.table)
                    note = self._note(noted, table)
                if change.op == TRUNCATED and table.key:
                    self._truncate(noted, table)
                    note = self._note(noted, table)
                elif note is not None:
                    note(seq, change)
            yield change
        self._reload(transaction.reloads)

    def _reload(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._courses:
                self.reload(name)

    def _look_again(self) -> None:
        """A load began or ended."""
        self._loading = frozenset(
            name for name, course in self._courses.items() if course.load.phase is not Phase.DONE
        )

    def _known(self, table: CapturedTable) -> CapturedTable:
        """A change tells of a table's newest version."""
        if table.name in self._courses:
            self._courses[table.name].table = table
        return table

    def _note(self, noted: Noted, table: CapturedTable) -> Callable[[int, Change], None] | None:
        course = self._courses.get(table.name)
        if course is None or course.load.phase is Phase.DONE:
            return None
        blind = [one for one in course.windows() if one.is_blind_to(noted.transaction)]
        return (
            self._key_note(noted, table.name, course, blind)
            if table.key
            else self._keyless_note(noted, table.name, blind)
        )

    def _key_note(
        self, noted: Noted, name: str, course: TableCourse, blind: list[Window]
    ) -> Callable[[int, Change], None]:
        add_key = self._journal.add_key
        sweep, topic_key = course.sweep, self._topic_key

        def note(_seq: int, change: Change) -> None:
            key = change.key or b""
            add_key(noted, name, key)
            for window in blind:
                window.drop((key,))
            if sweep is not None:
                sweep.leave_alone(topic_key(course.table, key))

        return note

    def _keyless_note(
        self, noted: Noted, name: str, blind: list[Window]
    ) -> Callable[[int, Change], None]:
        def note(seq: int, change: Change) -> None:
            again = Again(noted.transaction, seq, change)
            self._journal.add_change(noted, name, again)
            for window in blind:
                window.add_again(again)

        return note

    def _truncate(self, noted: Noted | None, table: CapturedTable) -> None:
        """Every row that was written so far is to be swept: also those of a load that runs."""
        course = self._courses.get(table.name)
        if course is None:  # dropped before this run began, so that nobody was to load it
            course = TableCourse(table, TableLoad(phase=Phase.DONE))
            self._courses[table.name] = course
        if noted is not None:
            self._journal.touch_all(noted, table.name)
            for window in course.windows():
                window.must_read_again |= window.is_blind_to(noted.transaction)
        self._leave(course)
        course.keep(course.load.truncated(self._ends(table.topic)))
        self._look_again()

    # What is to be read.

    def asks(self) -> list[Ask]:
        """What can be begun now. Each is answered once, by `arrived`."""
        if self._journal.must_settle:
            return [*self._settles()]
        found: list[Ask] = []
        for course in self._courses.values():
            match course.load.phase:
                case Phase.READING if not course.lanes:
                    found.extend(self._splits(course))
                case Phase.READING:
                    found.extend(self._reads(course))
                case Phase.SWEEPING:
                    found.extend(self._scans(course))
        return found

    def _settles(self) -> Iterator[Settle]:
        if not self._is_settling and self._loading:
            self._is_settling = True
            tables = tuple(self._courses[name].table for name in sorted(self._loading))
            yield Settle(opening=self._journal.open(), tables=tables)

    def _splits(self, course: TableCourse) -> Iterator[Split]:
        if not course.is_splitting and self._room() > 0:
            course.is_splitting = True
            yield Split(course=course, table=course.table, count=self._ranges_max)

    def _reads(self, course: TableCourse) -> Iterator[Read]:
        """The lanes that are least ahead first."""
        for lane in sorted(course.lanes, key=lambda lane: len(lane.reads)):
            if not lane.is_read and not lane.is_reading and self._room() > 0:
                yield self._read(course, lane)

    def _read(self, course: TableCourse, lane: Lane) -> Read:
        is_whole = not course.table.key
        read = Read(
            course=course,
            lane=lane,
            window=Window(course.table, self._journal.open()),
            table=course.table,
            after=lane.after,
            until=lane.until,
            rows_max=WHOLE_TABLE if is_whole else course.rows_next(self._chunk_rows_max),
            must_wait=lane.must_wait,
        )
        lane.reads.append(read)
        lane.must_wait = False
        return read

    def _scans(self, course: TableCourse) -> Iterator[Scan]:
        sweep = course.sweep
        if sweep is not None and sweep.is_committed and not sweep.is_asked:
            sweep.is_asked = True
            yield Scan(course=course, sweep=sweep, topic=course.table.topic, ends=course.load.ends)

    def _room(self) -> int:
        splits = sum(course.is_splitting for course in self._courses.values())
        reads = sum(1 for course in self._courses.values() for _ in course.windows())
        return self._chunks_ahead_max - splits - reads

    # What was read.

    def arrived(self, ask: Ask, answer: Answer) -> None:
        """What was asked for a load that has begun anew since is of no use."""
        match ask:
            case Settle():
                self._is_settling = False
                self._journal.settle(ask.opening)
            case Split():
                self._split(ask, cast(Parts, answer))
            case Read():
                self._take(ask, cast(Chunk, answer))
            case Scan():
                self._take_left(ask, cast(LeftKeys, answer))

    def _is_current(self, course: TableCourse) -> bool:
        return self._courses.get(course.table.name) is course

    def _split(self, split: Split, parts: Parts) -> None:
        course = split.course
        course.is_splitting = False
        if self._is_current(course) and course.load.phase is Phase.READING:
            course.keep(course.load.split(parts.parts or [(None, None)], parts.rows_estimate))
            course.lanes = lanes_of(course.load)

    def _take(self, read: Read, chunk: Chunk) -> None:
        lane, course = read.lane, read.course
        if not self._is_current(course) or read not in lane.reads:
            return
        read.window.arrive(chunk, self._journal)
        self._journal.saw(chunk)
        if read.window.must_read_again:
            lane.go_back_to(read)
        else:
            course.weigh(chunk)
            lane.after, lane.is_read = chunk.last_key, chunk.last_key is None
        self._trim()

    def _take_left(self, scan: Scan, left: LeftKeys) -> None:
        sweep = scan.sweep
        if not self._is_current(scan.course) or scan.course.sweep is not sweep:
            left.close()
            return
        if not sweep.found(left):
            left.close()
            scan.course.sweep = None  # another one, that reads what is committed by then

    def _trim(self) -> None:
        """The journal is kept for what is being read; what is read has taken its part."""
        openings = [
            window.opening
            for course in self._courses.values()
            for window in course.windows()
            if window.chunk is None
        ]
        self._journal.trim(min(openings, key=lambda opening: opening.clock, default=None))

    # What goes out.

    def due(self, position: str) -> list[Due]:
        """All that may follow what was handed over up to `position`; to be written now."""
        found: list[Due] = []
        for course in self._courses.values():
            for place, lane in enumerate(course.lanes):
                found.extend(self._due_of(course, place, lane, position))
            if course.load.phase is Phase.SWEEPING:
                found.extend(self._swept(course))
            if not course.is_saved:
                found.append(self._due(course))
        if found:
            self._look_again()
        return found

    def _due_of(self, course: TableCourse, place: int, lane: Lane, position: str) -> Iterator[Due]:
        while lane.reads and (chunk := lane.reads[0].window.chunk) is not None:
            window = lane.reads[0].window
            if window.must_read_again:
                lane.go_back_to(lane.reads[0])
            elif self._is_past(position, chunk.closes_at):
                lane.reads.popleft()
                course.keep(course.load.after_chunk(place, chunk))
                yield self._due(course, changes_of(window), window.again())
            else:
                return

    def _swept(self, course: TableCourse) -> Iterator[Due]:
        if course.sweep is None:
            course.sweep = Sweep()
            yield self._due(course)  # so that there is a commit to wait for
        elif course.sweep.left is not None:
            keys = course.sweep.left.take(SWEPT_MAX)
            if not keys:
                self._leave(course)
                course.keep(course.load.done())
            table = course.table
            deletes = [Change(table, DELETED, key, None, None) for key in keys]
            yield self._due(course, deletes)

    def _due(
        self, course: TableCourse, changes: Sequence[Change] = (), again: Sequence[Again] = ()
    ) -> Due:
        course.is_saved = True
        return Due(
            table=course.table,
            state=load_to_json(course.load),
            position=course.load.position,
            changes=changes,
            again=again,
        )

    def committed(self) -> None:
        """What `due` gave and what was followed so far can be read in the topics."""
        for course in self._courses.values():
            if course.sweep is not None:
                course.sweep.is_committed = True

    # How far it is.

    @property
    def is_done(self) -> bool:
        return not self._loading and all(one.is_saved for one in self._courses.values())

    def progress(self) -> list[TableProgress]:
        return [
            TableProgress(
                table=name,
                phase=course.load.phase,
                rows=course.load.rows,
                rows_estimate=course.load.rows_estimate,
            )
            for name, course in self._courses.items()
        ]


def changes_of(window: Window) -> list[Change]:
    table = window.chunk.table if window.chunk is not None else window.table
    rows = [Change(table, READ, key, None, after) for key, after in window.rows()]
    return rows if table.key else [Change(table, TRUNCATED, None, None, None), *rows]
