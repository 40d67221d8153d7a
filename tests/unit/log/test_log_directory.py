"""The data directory: one owner, a format, and checkpoints that outlive a crash."""

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream.base.disk import TooManyOpenFiles, Unwritable
from millstream.base.errors import Corrupt
from millstream.log.config import LogConfig
from millstream.log.log_directory import (
    FORMAT_VERSION,
    DirectoryLocked,
    FormatTooNew,
    LogDirectory,
    OwnershipLost,
    offsets_from_text,
    offsets_to_text,
)
from millstream.log.partition_log import PartitionLog
from tests.support.batches import NOW_MS, batch, read_records, values

ORDERS = ("orders", 0)
HOLD = """
import sys
from pathlib import Path
from millstream.log.log_directory import LogDirectory
directory = LogDirectory(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def open_orders(directory: LogDirectory) -> PartitionLog:
    return directory.open_partition(ORDERS, LogConfig(), topic_id=bytes(16), now_ms=NOW_MS)


def test_a_directory_in_use_is_refused_with_its_owner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLocked, match=f"process {other.pid}"):
            LogDirectory(tmp_path)
        other.communicate()
    LogDirectory(tmp_path).close(now_ms=NOW_MS)


def test_each_owner_has_a_higher_epoch_and_the_same_cluster(tmp_path: Path) -> None:
    owners = []
    for _ in range(3):
        directory = LogDirectory(tmp_path)
        directory.close(now_ms=NOW_MS)
        owners.append(directory)
    assert [each.epoch for each in owners] == [0, 1, 2]
    assert len({each.cluster_id for each in owners}) == 1


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    meta = {"format": FORMAT_VERSION + 1, "cluster_id": "x", "epoch": 0}
    (tmp_path / "millstream.json").write_text(json.dumps(meta))
    with pytest.raises(FormatTooNew, match="install a newer millstream"):
        LogDirectory(tmp_path)
    assert json.loads((tmp_path / "millstream.json").read_text()) == meta
    with pytest.raises(FormatTooNew):  # and not DirectoryLocked
        LogDirectory(tmp_path)


def test_a_format_that_cannot_be_read_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "millstream.json").write_text("{")
    with pytest.raises(Corrupt, match=r"millstream\.json"):
        LogDirectory(tmp_path)


def test_an_owner_notices_that_it_was_replaced(tmp_path: Path) -> None:
    old = LogDirectory(tmp_path)
    old.check_ownership()
    old.abandon()
    LogDirectory(tmp_path).abandon()
    with pytest.raises(OwnershipLost, match="epoch 0 owned it, but 1 has taken over"):
        old.check_ownership()


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Unwritable, match="file"):
            LogDirectory(path)


def test_a_partition_outlives_its_owner(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    open_orders(directory).append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert directory.close(now_ms=NOW_MS)
    directory = LogDirectory(tmp_path)
    assert directory.partitions_on_disk() == [ORDERS]
    assert values(read_records(open_orders(directory))) == [b"a", b"b"]
    directory.close(now_ms=NOW_MS)


def test_a_stop_is_clean_only_if_every_partition_was_opened(tmp_path: Path) -> None:
    """One that nobody recovered since a crash must not be trusted because of the others."""
    directory = LogDirectory(tmp_path)
    open_orders(directory)
    assert directory.close(now_ms=NOW_MS)
    assert not LogDirectory(tmp_path).close(now_ms=NOW_MS)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_recovery_points_of_partitions_that_are_not_open_are_kept(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    open_orders(directory).append(batch(b"a"), now_ms=NOW_MS)
    directory.close(now_ms=NOW_MS)
    directory = LogDirectory(tmp_path)
    directory.open_partition(("other", 0), LogConfig(), topic_id=bytes(16), now_ms=NOW_MS)
    directory.save_recovery_points()
    directory.abandon()
    text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert offsets_from_text(text) == {ORDERS: 1, ("other", 0): 0}


def test_a_lack_of_descriptors_does_not_make_a_log_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll opens several files; whichever cannot be opened, the next append tries again."""
    directory = LogDirectory(tmp_path)
    small = LogConfig(segment_bytes=1)
    log = directory.open_partition(ORDERS, small, topic_id=bytes(16), now_ms=NOW_MS)
    log.append(batch(b"first"), now_ms=NOW_MS)
    system_open, refusals = os.open, 0
    while log.segment_count == 1:
        left = refusals

        def open_some(path: Any, flags: int, mode: int = 0o777) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.EMFILE, "planted")
            return system_open(path, flags, mode)

        monkeypatch.setattr(os, "open", open_some)
        with contextlib.suppress(TooManyOpenFiles):
            log.append(batch(b"second"), now_ms=NOW_MS)
        monkeypatch.undo()
        assert log.failure is None
        refusals += 1
    assert refusals > 3, "not one of them was refused"
    log.sync(now_ms=NOW_MS)
    assert values(read_records(log)) == [b"first", b"second"]
    assert directory.close(now_ms=NOW_MS)


def test_a_partition_created_again_starts_at_zero(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    log = open_orders(directory)
    log.append(batch(b"a", b"b"), now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    directory.delete_records(ORDERS, 2)
    directory.save_recovery_points()
    directory.delete_partition(ORDERS)
    directory.forget_offsets(ORDERS[0])
    open_orders(directory)
    directory.abandon()
    directory = LogDirectory(tmp_path)
    log = open_orders(directory)
    assert (log.start_offset, log.end_offset) == (0, 0)
    directory.close(now_ms=NOW_MS)


def test_deleted_records_that_were_not_synced_are_synced_first(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    relaxed = LogConfig(flush_messages=1000)
    log = directory.open_partition(ORDERS, relaxed, topic_id=bytes(16), now_ms=NOW_MS)
    log.append(batch(b"a", b"b"), now_ms=NOW_MS)
    directory.delete_records(ORDERS, 2)
    assert log.synced_offset == 2
    directory.close(now_ms=NOW_MS)


def test_a_checkpoint_is_kafkas_text() -> None:
    text = "0\n2\na 0 5\nb-c 12 0\n"
    offsets = {("b-c", 12): 0, ("a", 0): 5}
    assert offsets_to_text(offsets) == text
    assert offsets_from_text(text) == offsets
    assert offsets_from_text("0\n2\nb-c 12 0\na 0 5\n") == offsets


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "0\n",
        "1\n0\n",
        "0\n1\n",
        "0\n1\na 0 5",
        "0\n1\na 0\n",
        "0\n1\na 0 x\n",
        "0\n1\na 0 05\n",
    ],
)
def test_any_other_text_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        offsets_from_text(text)


def test_a_new_directory_is_closed_to_other_users_of_the_machine(tmp_path: Path) -> None:
    LogDirectory(tmp_path / "data").close(now_ms=NOW_MS)
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
