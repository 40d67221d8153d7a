"""Snapshots of one server are ordered by what they see."""

import pytest

from millstream.capture.postgres.loading import Snapshot
from millstream.capture.postgres_triggers.position import BadPosition, Position

# As a server would take them, one after the other: (755 still runs, then 752 ends, ...).
IN_ORDER = ["751-0", "755-2", "755-1.7", "755-1.40", "755-1", "755-0", "756-3.1", "756-3"]


@pytest.mark.parametrize("text", IN_ORDER)
def test_a_position_is_written_as_it_was_read(text: str) -> None:
    assert str(Position.from_text(text)) == text


def test_positions_are_in_the_order_in_which_their_snapshots_were_taken() -> None:
    positions = [Position.from_text(text) for text in IN_ORDER]
    for place, position in enumerate(positions):
        past = [position.is_past(other) for other in positions]
        assert past == [True] * (place + 1) + [False] * (len(positions) - place - 1)


def test_a_snapshot_is_named_by_its_end_and_how_many_run() -> None:
    assert str(Position.of(Snapshot.from_text("750:755:750,752"))) == "755-2"


@pytest.mark.parametrize("text", ["", "755", "0/16B374D848", "755-1.", "-1-2", "755-1.x"])
def test_another_position_is_refused(text: str) -> None:
    with pytest.raises(BadPosition, match="no position"):
        Position.from_text(text)
