"""A map in the log: its newest values, rewritten when most of it is history."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.log import state_log
from millstream.log.config import LogConfig
from millstream.log.log_directory import LogDirectory
from millstream.log.record_batch import Marker
from millstream.log.state_log import StateLog
from tests.support.batches import NOW_MS
from tests.support.simulated_disk import SimulatedDisk

STATE = ("state", 0)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    directory = LogDirectory(tmp_path, disk=SimulatedDisk(tmp_path))
    directory.open_partition(STATE, LogConfig(), topic_id=bytes(16), now_ms=NOW_MS)
    yield directory
    directory.close(now_ms=NOW_MS)


def test_the_newest_value_of_each_key_counts(directory: LogDirectory) -> None:
    state = StateLog(directory, STATE)
    state.put([(b"a", b"1"), (b"b", b"1")], now_ms=NOW_MS)
    state.put([(b"a", b"2"), (b"b", None), (b"c", b"")], now_ms=NOW_MS)
    state.log.sync(now_ms=NOW_MS)
    for each in (state, StateLog(directory, STATE)):
        assert dict(each) == {b"a": b"2", b"c": b""}
        assert each.get(b"b") is None


def test_a_rewrite_keeps_the_map_and_drops_the_history(
    directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "REWRITE_BYTES_MIN", 1000)
    monkeypatch.setattr(state_log, "REWRITE_BATCH_BYTES", 20)
    state = StateLog(directory, STATE)
    for number in range(20):
        state.put([(b"key %d" % (number % 3), b"%d" % number)], now_ms=NOW_MS)
    assert state.must_rewrite
    state.rewrite(now_ms=NOW_MS)
    assert not state.must_rewrite
    assert state.log.start_offset == 20
    expected = {b"key 0": b"18", b"key 1": b"19", b"key 2": b"17"}
    assert dict(state) == dict(StateLog(directory, STATE)) == expected


def test_an_empty_map_can_be_rewritten(directory: LogDirectory) -> None:
    state = StateLog(directory, STATE)
    state.rewrite(now_ms=NOW_MS)
    state.put([(b"a", b"1")], now_ms=NOW_MS)
    state.put([(b"a", None)], now_ms=NOW_MS)
    state.rewrite(now_ms=NOW_MS)
    assert dict(StateLog(directory, STATE)) == {}


# --- transactions -------------------------------------------------------------------------------

WHO = {"producer_id": 7, "producer_epoch": 0}


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_is_pending_survives_a_rewrite_and_counts_from_its_commit(
    directory: LogDirectory, is_commit: bool
) -> None:
    state = StateLog(directory, STATE)
    state.put([(b"a", b"old"), (b"b", b"old")], now_ms=NOW_MS)
    state.put_in_transaction([(b"a", b"new"), (b"b", None)], **WHO, now_ms=NOW_MS)
    state.rewrite(now_ms=NOW_MS)
    assert state.log.start_offset == 4, "the history is gone"
    again = StateLog(directory, STATE)
    assert dict(again) == {b"a": b"old", b"b": b"old"}
    again.end_transaction(Marker(is_commit, 0), **WHO, now_ms=NOW_MS)
    again.log.sync(now_ms=NOW_MS)
    for each in (again, StateLog(directory, STATE)):
        assert dict(each) == ({b"a": b"new"} if is_commit else {b"a": b"old", b"b": b"old"})
        assert not each.pending
