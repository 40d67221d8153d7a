"""A full disk is said once a minute, and once when it is over; quotas count as full, too."""

from millstream.base.disk import FULL_BYTES
from millstream.base.quantity import MIB
from millstream.log.disk_space import LINE_INTERVAL_MS, QUIET_MS, DiskSpace

NOW_MS = 1_000_000


def test_a_disk_with_room_is_not_spoken_of() -> None:
    space = DiskSpace("/data")
    assert space.look(FULL_BYTES, now_ms=NOW_MS) is None
    assert not space.is_full


def test_a_full_disk_is_said_at_once_then_once_a_minute_and_once_when_it_is_over() -> None:
    space = DiskSpace("/data")
    first = space.look(FULL_BYTES - 1, now_ms=NOW_MS)
    assert first is not None
    assert first.startswith("/data: the disk is full: 1023KiB free, 0 writes refused")
    assert space.is_full
    space.note_refusal()
    assert space.look(0, now_ms=NOW_MS + LINE_INTERVAL_MS - 1) is None
    again = space.look(0, now_ms=NOW_MS + LINE_INTERVAL_MS)
    assert again is not None
    assert "the disk is full: 0B free, 1 write refused in 1m" in again
    over_ms = NOW_MS + LINE_INTERVAL_MS + QUIET_MS
    over = space.look(8 * MIB, now_ms=over_ms)
    assert over == "/data: the disk has room again: 8MiB free, 1 write refused in 1m 5s"
    assert not space.is_full
    assert space.look(8 * MIB, now_ms=over_ms + LINE_INTERVAL_MS) is None


def test_a_quota_counts_as_full_while_writes_are_refused() -> None:
    """The file system shows free space, and takes nothing."""
    space = DiskSpace("/data")
    space.note_refusal()
    assert space.look(100 * MIB, now_ms=NOW_MS) is not None
    assert space.look(100 * MIB, now_ms=NOW_MS + QUIET_MS - 1) is None
    assert space.is_full
    over = space.look(100 * MIB, now_ms=NOW_MS + QUIET_MS)
    assert over is not None
    assert "room again" in over


def test_the_next_full_disk_is_said_at_once_with_its_own_count() -> None:
    space = DiskSpace("/data")
    space.note_refusal()
    space.look(0, now_ms=NOW_MS)
    space.look(8 * MIB, now_ms=NOW_MS + QUIET_MS)
    space.note_refusal()
    space.note_refusal()
    line = space.look(0, now_ms=NOW_MS + QUIET_MS + 1)
    assert line is not None
    assert "2 writes refused" in line
    assert space.refusals == 3
