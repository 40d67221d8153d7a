"""What a writer knows of its partition equals what a naive list of events says, whatever was
decided, committed and dropped; however it was read again; and through its file."""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millstream.base.errors import Rejected
from millstream.eventsourcing.chain_walk import ChainWalk
from millstream.eventsourcing.index_file import decode_index, encode_index, read_index, write_index
from millstream.eventsourcing.partition_state import PartitionState, ReadRecords
from millstream.eventsourcing.query import Condition, Query
from millstream.eventsourcing.reading_plan import plan_scans
from millstream.eventsourcing.staging import Decided, Staging, Wish
from millstream.eventsourcing.stored_event import Command, NewEvent, StoredEvent, decode_event

STREAMS, TYPES, TAGS = ["a", "b", "c"], ["X", "Y"], ["t", "u", "v"]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

queries = st.builds(
    Query, types=st.sets(st.sampled_from(TYPES)), tags=st.sets(st.sampled_from(TAGS))
)
conditions = st.builds(
    Condition, fail_if=st.builds(Query.__or__, queries, queries), after=st.integers(0, 12)
)
events = st.builds(
    NewEvent,
    type=st.sampled_from(TYPES),
    data=st.just(b"{}"),
    tags=st.lists(st.sampled_from(TAGS), unique=True).map(tuple),
)
commands = st.builds(
    Command, id=st.sampled_from(list("123456")), print=st.sampled_from(["p", "p", "p", "q"])
)


@dataclass
class Asked:
    stream: str
    events: list[NewEvent]
    expect: int | None
    condition: Condition | None
    command: Command | None


asks = st.builds(
    Asked,
    stream=st.sampled_from(STREAMS),
    events=st.lists(events, max_size=3),
    expect=st.none() | st.integers(0, 4),
    condition=st.none() | conditions,
    command=st.none() | commands,
)
groups = st.lists(st.tuples(st.lists(asks, max_size=4), st.booleans()), max_size=8)


@dataclass
class Naive:
    """Events in a list; everything else is looked up by going through it."""

    events: list[tuple[str, NewEvent, Command | None]] = field(default_factory=list)

    def version(self, stream: str) -> int:
        return sum(one == stream for one, _, _ in self.events)

    def matching(self, query: Query, after: int) -> list[int]:
        found = enumerate(self.events, 1)
        return [n for n, (_, e, _) in found if n > after and query.matches(e.type, e.tags)]

    def remembered(self) -> dict[str, tuple[str, str]]:
        newest: dict[str, tuple[str, str]] = {}
        for stream, _, command in self.events:
            if command is not None and newest.get(command.id) is None:
                newest[command.id] = command.print, stream
        return newest

    def decide(self, asked: Asked) -> str:
        seen = asked.command and self.remembered().get(asked.command.id)
        if asked.command and seen:
            is_same = seen == (asked.command.print, asked.stream)
            return "repeat" if is_same else "CommandIdReused"
        if asked.expect not in (None, self.version(asked.stream)):
            return "WrongVersion"
        if asked.condition and self.matching(asked.condition.fail_if, asked.condition.after):
            return "ConditionFailed"
        self.events += [(asked.stream, event, asked.command) for event in asked.events]
        return "done"


class Writer:
    """Stages, and writes to a log that is a list of values with holes for markers."""

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.state = state()
        self._ids = iter(range(1_000_000))

    def staging(self) -> Staging:
        ids = (f"id-{number}" for number in self._ids)
        return Staging(self.state, read=self.events, now=lambda: NOON, new_id=lambda: next(ids))

    def commit(self, staging: Staging) -> None:
        offset = len(self.log)
        staging.settle(offset)
        if staging.records:
            self.log += [value for _, value in staging.records] + [None]

    def events(self, seqs: Sequence[int]) -> Iterator[StoredEvent]:
        scans, recent = plan_scans(seqs, self.state)
        for scan in scans:
            offsets = range(scan.within.start, scan.within.end)
            kept = [at for at in offsets if scan.offsets is None or at in scan.offsets]
            yield from (decode_event(v, place="") for at in kept if (v := self.log[at]))
        yield from (decode_event(value, place="") for value in recent.values)


def state(recent_bytes_max: int = 900) -> PartitionState:
    return PartitionState("t[0]", command_ids_max=1_000, recent_bytes_max=recent_bytes_max)


def outcome(staging: Staging, asked: Asked) -> str:
    wish = Wish(
        asked.stream,
        lambda _head: asked.events,
        asked.expect,
        asked.condition,
        asked.command,
    )
    try:
        decided: Decided = staging.decide(wish)
    except Rejected as error:
        return type(error).__name__
    return "repeat" if decided.repeats else "done"


def run(steps: list[tuple[list[Asked], bool]]) -> tuple[Writer, Naive]:
    writer, naive = Writer(), Naive()
    for group, is_committed in steps:
        staging, tried = writer.staging(), Naive(list(naive.events))
        for asked in group:
            assert outcome(staging, asked) == tried.decide(asked)
            assert staging.head(asked.stream)[0] == tried.version(asked.stream)
        if is_committed:
            writer.commit(staging)
            naive = tried
    return writer, naive


def reread(log: Sequence[bytes | None], size: int) -> PartitionState:
    """As another process reads it, so many records at a time."""
    found = state()
    for start in range(0, len(log), size):
        part = [(at, v) for at, v in enumerate(log) if start <= at < start + size and v]
        records = ReadRecords([at for at, _ in part], [value for _, value in part])
        found.take_read(records, end=min(start + size, len(log)))
    return found


def facts_of(state: PartitionState) -> dict[str, Any]:
    index = state.index
    lists = (index.streams, index.types, index.tags)
    return {
        "lists": [{name: list(seqs) for name, seqs in one.items()} for one in lists],
        "offsets": [state.offset_of(seq) for seq in range(1, state.seq + 1)],
        "commands": list(state.commands.items()),
        "rest": (state.seq, state.end, state.at, state.hashes, state.last_hash),
    }


@given(groups)
def test_decisions_are_those_of_a_naive_list(steps: list[tuple[list[Asked], bool]]) -> None:
    writer, naive = run(steps)
    assert writer.state.seq == len(naive.events)
    for stream in STREAMS:
        assert writer.state.version(stream) == naive.version(stream)


@given(groups, st.builds(Query.__or__, queries, queries), st.integers(0, 6), st.integers(0, 6))
def test_what_is_found_is_what_a_naive_list_finds(
    steps: list[tuple[list[Asked], bool]], query: Query, after: int, upto: int
) -> None:
    writer, naive = run(steps)
    index, seq = writer.state.index, writer.state.seq
    found = list(index.matching(query, after=after, upto=seq))
    assert found == naive.matching(query, after)
    assert [event.seq for event in writer.events(found)] == found
    for stream in STREAMS:
        own = [n for n, (name, _, _) in enumerate(naive.events, 1) if name == stream]
        assert (
            list(index.of_stream(stream, after=after, upto=upto, position=None)) == own[after:upto]
        )
        part = list(index.of_stream(stream, after=0, upto=None, position=upto))
        assert part == [n for n in own if n <= upto]
        assert [event.stream for event in writer.events(own)] == [stream] * len(own)


@given(groups, st.integers(1, 7))
def test_who_reads_the_log_knows_what_its_writer_knows(
    steps: list[tuple[list[Asked], bool]], size: int
) -> None:
    writer, _ = run(steps)
    assert facts_of(reread(writer.log, size)) == facts_of(writer.state)


@given(groups)
def test_a_state_survives_its_file(steps: list[tuple[list[Asked], bool]]) -> None:
    writer, _ = run(steps)
    loaded = state()
    decode_index(encode_index(writer.state), loaded)
    assert facts_of(loaded) == facts_of(writer.state)
    after = Writer()
    after.state, after.log = loaded, list(writer.log)
    staging = after.staging()
    staging.decide(Wish("a", lambda _head: [NewEvent(type="X", data=b"{}")]))
    after.commit(staging)
    assert facts_of(reread(after.log, 3)) == facts_of(after.state)


def test_a_file_is_read_as_it_was_written() -> None:
    one = Asked("a", [NewEvent(type="X", data=b"{}", tags=("t",))], 0, None, Command(id="1"))
    writer, _ = run([([one], True)])
    with tempfile.TemporaryDirectory() as folder:
        path, loaded = Path(folder) / "events" / "index", state()
        assert not read_index(path, loaded)
        write_index(path, writer.state)
        assert read_index(path, loaded)
    assert facts_of(loaded) == facts_of(writer.state)


def test_two_who_write_a_file_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    writer, _ = run([([Asked("a", [NewEvent(type="X", data=b"{}")], 0, None, None)], True)])
    path = tmp_path / "index"
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write_index, path, writer.state) for _ in range(100)]:
            done.result()
    assert [one.name for one in tmp_path.iterdir()] == ["index"]
    assert read_index(path, state())


@given(groups)
def test_chains_hold_over_whatever_was_decided(steps: list[tuple[list[Asked], bool]]) -> None:
    writer, _ = run(steps)
    walk = ChainWalk(0, is_cut=False)
    assert [walk.take(at, value) for at, value in enumerate(writer.log) if value] == [
        None
    ] * writer.state.seq
