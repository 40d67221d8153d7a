"""Places in the log, what snapshots see, and names."""

import pytest

from millstream.capture.postgres.loading import Snapshot
from millstream.capture.postgres.lsn import BadPosition, end_of_records, lsn_from_text, lsn_to_text
from millstream.capture.postgres.refusals import LoginRefused, Refused, refusal
from millstream.capture.postgres.slot import NAME_BYTES_MAX, slot_name
from millstream.capture.source import SourceInterrupted


@pytest.mark.parametrize("lsn", [0, 1, 0x16_B374D848, 2**64 - 1])
def test_a_position_reads_back_as_itself(lsn: int) -> None:
    assert lsn_from_text(lsn_to_text(lsn)) == lsn


def test_what_is_no_position_is_refused() -> None:
    with pytest.raises(BadPosition, match="16/B374D848"):
        lsn_from_text("gone")


def test_the_header_of_a_page_is_not_waited_for() -> None:
    assert end_of_records(8192 + 24) == 8192
    assert end_of_records(8192 + 40) == 8192
    assert end_of_records(8192 + 48) == 8192 + 48


def test_a_snapshot_sees_what_ended_before_it() -> None:
    snapshot = Snapshot.from_text("10:20:10,14")
    assert [xid for xid in range(5, 25) if not snapshot.sees(xid)] == [10, 14, *range(20, 25)]
    assert Snapshot.from_text("10:10:").sees(9)


def test_a_snapshot_knows_numbers_that_began_again() -> None:
    span = 2**32
    snapshot = Snapshot.from_text(f"{span + 3}:{span + 5}:{span + 3}")
    assert [snapshot.sees(xid) for xid in (span - 1, 0, 2, 3, 4, 5, 1000)] == [
        True, True, True, False, True, False, False,
    ]  # fmt: skip


def test_names_of_slots_are_allowed_and_do_not_meet() -> None:
    names = ["shop", "Shop", "shop-1", "shop_1", "x" * 100, "x" * 99 + "y"]
    slots = [slot_name(name) for name in names]
    assert slots[0] == "millstream_shop"
    assert len({*slots}) == len(names)
    for slot in slots:
        assert len(slot) <= NAME_BYTES_MAX
        assert slot == slot.lower().replace("-", "_")


@pytest.mark.parametrize(
    ("sqlstate", "message", "expected"),
    [
        ("28P01", "password authentication failed", LoginRefused),
        (None, "FATAL:  password authentication failed", LoginRefused),
        ("42501", "permission denied for table x", Refused),
        ("57P01", "terminating connection", SourceInterrupted),
        ("53100", "could not extend file: No space left on device", SourceInterrupted),
        (None, "server closed the connection", SourceInterrupted),
    ],
)
def test_errors_of_the_server_are_told_by_what_to_do(
    sqlstate: str | None, message: str, expected: type[Exception]
) -> None:
    found = refusal("shop", sqlstate, message)
    assert type(found) is expected
    assert message.split()[-1] in str(found)
