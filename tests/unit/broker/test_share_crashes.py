"""A share group, cut off between any two steps: nothing is lost, and what was answered stands.

The disk is simulated: before every call that changes it, what each kind of power cut would leave
is kept aside, and a new broker starts from it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.broker.wire import ErrorCode
from tests.support.recording_disk import Leftovers, RecordingDisk, restarted
from tests.support.served_node import ServedNode
from tests.support.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    Got,
    ShareMember,
    letters_in,
    set_group_config,
)
from tests.support.simulated_disk import Survival

DEAD = "orders.dead"
Steps = Callable[[ServedNode, ShareMember], None]


def nothing(served: ServedNode, ada: ShareMember) -> None:
    pass


def recorded(tmp_path: Path, steps: Steps, before: Steps = nothing) -> Leftovers:
    """What is left at any moment of `steps`, by a member that holds the records 0 to 3."""
    disk = RecordingDisk(tmp_path)
    served = ServedNode(tmp_path, disk=disk)
    served.create("orders")
    served.create(DEAD)
    served.produce(b"a", b"b", b"c", b"d")
    set_group_config(
        served, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=DEAD
    )
    ada = ShareMember(served)
    assert len(ada.fetch()) == 4
    before(served, ada)
    disk.start()
    steps(served, ada)
    leftovers = disk.stop()
    served.close()
    return leftovers


def settle_all(served: ServedNode, ada: ShareMember) -> None:
    """Two requests: the first half, then the other."""
    assert ada.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE)) == ErrorCode.NONE
    assert ada.acknowledge((2, 2, REJECT), (3, 3, ACCEPT)) == ErrorCode.NONE


def left_in_queue(served: ServedNode) -> list[Got]:
    return ShareMember(served, member_id="bob").fetch()


ALL = [(0, b"a", 1), (1, b"b", 1), (2, b"c", 1), (3, b"d", 1)]
HALF = [(1, b"b", 2), (2, b"c", 1), (3, b"d", 1)]
# The accepted record of the second request counts before the rejected one, whose letter comes
# first: they are stored apart.
MOST = [(1, b"b", 2), (2, b"c", 1)]
DONE = [(1, b"b", 2)]


def test_after_a_crash_no_record_is_lost_or_half_settled(tmp_path: Path) -> None:
    seen: list[list[Got]] = []
    for moment, served in restarted(tmp_path, recorded(tmp_path, settle_all)):
        found = left_in_queue(served)
        assert found in (ALL, HALF, MOST, DONE), moment
        if found == DONE:
            assert b"c" in letters_in(served, DEAD), moment
        seen.append(found)
    assert ALL in seen
    assert HALF in seen
    assert DONE in seen


def test_what_was_answered_stands(tmp_path: Path) -> None:
    """The last moment: nothing depends on what was not synced."""
    left = recorded(tmp_path, settle_all)[-len(Survival) :]
    for moment, served in restarted(tmp_path, left):
        assert left_in_queue(served) == DONE, moment
        assert letters_in(served, DEAD) == [b"c"], moment


def test_a_letter_is_there_before_its_record_is_done(tmp_path: Path) -> None:
    def reject(served: ServedNode, ada: ShareMember) -> None:
        assert ada.acknowledge((0, 3, REJECT)) == ErrorCode.NONE

    outcomes = set()
    for moment, served in restarted(tmp_path, recorded(tmp_path, reject)):
        is_done = left_in_queue(served) == []
        has_letters = letters_in(served, DEAD) == [b"a", b"b", b"c", b"d"]
        assert has_letters or not is_done, moment
        outcomes.add((has_letters, is_done))
    assert outcomes == {(False, False), (True, False), (True, True)}


@pytest.mark.parametrize("offset", [1, 4])
def test_a_reset_of_the_start_is_there_or_not(tmp_path: Path, offset: int) -> None:
    def reset(served: ServedNode, ada: ShareMember) -> None:
        shares = served.node.share_partitions
        [place] = shares.positions("workers")
        served.run(shares.set_start("workers", {place: offset}))

    found = []
    for _, served in restarted(tmp_path, recorded(tmp_path, reset)):
        [state] = served.node.share_partitions.positions("workers").values()
        found.append(state.start_offset)
    assert set(found) == {0, offset}
    assert found[-1] == offset


def test_the_history_of_the_state_can_be_dropped_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.sharing.share_state_log.REWRITE_BYTES_MIN", 1)

    def drop_history(served: ServedNode, ada: ShareMember) -> None:
        async def rewrite() -> None:
            served.node.share_partitions.rewrite_if_worth_it()

        served.run(rewrite())
        assert served.node.share_partitions.partition.log.start_offset > 0

    for moment, served in restarted(tmp_path, recorded(tmp_path, drop_history, settle_all)):
        assert left_in_queue(served) == DONE, moment
