"""A broker whose data directory another process has taken over: it stops by itself, says why, and
leaves the directory as the new owner has it.

The lock keeps that from happening where it works. It does not where its file was removed, or on a
network file system that lost it.
"""

from pathlib import Path

import pytest

from millstream.broker import server
from millstream.log.log_directory import LOCK_FILE, RECOVERY_POINTS_FILE, LogDirectory
from tests.support.batches import batch
from tests.support.broker_process import BrokerProcess, assert_no_traceback
from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import RawClient
from tests.support.waiting import eventually

TOPIC = "orders"
CHECKPOINT_INTERVAL_MS = 30
EXIT_LOST_DIRECTORY = 74
LINE = "epoch 0 owned it, but 1 has taken over; this broker stops"


def publish(bootstrap: str) -> None:
    """Something that a clean stop would write indexes, snapshots and checkpoints for."""
    with RawClient(bootstrap) as client:
        client.create_topic(TOPIC)
        sent = bytes(batch(b"kept", producer_id=1, sequence=0))
        assert client.produce(TOPIC, sent).error_code == 0


def take_over(data_dir: Path) -> LogDirectory:
    (data_dir / LOCK_FILE).unlink()
    return LogDirectory(data_dir)


def contents(data_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}


def test_a_broker_that_lost_its_directory_stops_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "CHECKPOINT_INTERVAL_MS", CHECKPOINT_INTERVAL_MS)
    with BrokerThread(tmp_path) as broker:
        publish(broker.bootstrap)
        # On the broker's loop, so that it is not in the middle of a checkpoint.
        owner, before = broker.ask(lambda _: (take_over(tmp_path), contents(tmp_path)))
        eventually(broker.server.failed.is_set, what="it noticed", within_s=5)
        is_clean = broker.begin_stop().result(20)
        after = contents(tmp_path)
    assert not is_clean
    assert after == before
    owner.check_ownership()
    owner.abandon()
    assert caplog.text.count(LINE) == 1, "said once; it then leaves without another look"


def test_a_stop_before_it_noticed_writes_nothing_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(tmp_path) as broker:
        publish(broker.bootstrap)
        owner, before = broker.ask(lambda _: (take_over(tmp_path), contents(tmp_path)))
        assert not broker.begin_stop().result(20)
        assert contents(tmp_path) == before
    owner.abandon()
    assert LINE in caplog.text


def test_its_process_ends_with_an_exit_code_of_its_own(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerProcess(data_dir, checkpoint_interval_ms=CHECKPOINT_INTERVAL_MS) as broker:
        publish(broker.bootstrap)
        points = data_dir / RECOVERY_POINTS_FILE
        eventually(
            lambda: points.exists() and f"{TOPIC} 0 1\n" in points.read_text(),
            what="a checkpoint: the next one has nothing to write",
        )
        owner = take_over(data_dir)
        before = contents(data_dir)
        assert broker.wait() == EXIT_LOST_DIRECTORY
        assert contents(data_dir) == before
        owner.abandon()
        assert LINE in broker.diagnostics
        assert_no_traceback(broker.diagnostics)
