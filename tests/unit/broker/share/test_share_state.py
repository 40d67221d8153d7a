"""What of a share partition is stored, when, and what it is after a crash."""

from millstream.broker.share.acknowledgement import AcknowledgeType
from millstream.broker.share.delivery import DurableDelivery, RecordState
from millstream.broker.share.share_partition import SharePartition
from millstream.broker.share.share_state import ShareState, StateBatch, StateChange
from tests.unit.broker.share.steps import ADA, BOB, LOCK_MS, Queue

AVAILABLE_ONCE = DurableDelivery(1, RecordState.AVAILABLE)
ACCEPTED = DurableDelivery(1, RecordState.ACKNOWLEDGED)
ARCHIVED = DurableDelivery(1, RecordState.ARCHIVED)


def stored(queue: Queue, before: ShareState | None = None) -> ShareState:
    change = queue.partition.take_change()
    assert change is not None
    return (before or ShareState()).changed(change)


def test_where_a_new_partition_starts_is_stored_before_anything_else() -> None:
    queue = Queue((0, 10))
    assert queue.partition.take_change() == StateChange(
        start_offset=0, complete_count=0, batches=()
    )
    assert queue.partition.take_change() is None


def test_handing_records_out_stores_nothing() -> None:
    queue = Queue((0, 10))
    stored(queue)
    queue.acquire()
    assert queue.partition.take_change() is None


def test_renewing_a_lock_stores_nothing() -> None:
    queue = Queue((0, 10))
    stored(queue)
    queue.acquire()
    queue.acknowledge(0, 10, AcknowledgeType.RENEW)
    assert queue.partition.take_change() is None


def test_what_is_done_at_the_front_is_stored_as_the_start_alone() -> None:
    queue = Queue((0, 10))
    stored(queue)
    queue.acquire()
    queue.acknowledge(0, 4)
    assert queue.partition.take_change() == StateChange(
        start_offset=4, complete_count=0, batches=()
    )


def test_a_change_names_only_what_has_changed() -> None:
    queue = Queue((0, 10))
    stored(queue)
    queue.acquire()
    queue.acknowledge(2, 4)
    stored(queue)
    queue.acknowledge(6, 8, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    assert queue.partition.take_change() == StateChange(
        start_offset=0,
        complete_count=3,
        batches=(StateBatch(6, 7, AVAILABLE_ONCE), StateBatch(7, 8, ARCHIVED)),
    )


def test_neighbours_that_ended_alike_are_stored_as_one() -> None:
    queue = Queue((0, 5), (5, 10))
    stored(queue)
    queue.acquire(batch_size=5)
    queue.wait(LOCK_MS)
    change = queue.partition.take_change()
    assert change is not None
    assert change.batches == (StateBatch(0, 10, AVAILABLE_ONCE),)


def test_all_there_is_and_what_has_changed_add_up_to_the_same() -> None:
    queue = Queue((0, 10))
    state = stored(queue)
    queue.acquire()
    queue.acknowledge(3, 5)
    state = stored(queue, state)
    queue.release(5, 7)
    state = stored(queue, state)
    assert ShareState().changed(queue.partition.take_everything()) == state


def test_after_a_crash_what_was_held_is_available_and_the_attempt_does_not_count() -> None:
    queue = Queue((0, 10))
    queue.acquire(ADA)
    queue.acknowledge(4, 6)
    queue.release(6, 8)
    state = stored(queue)
    queue.acquire(BOB)
    queue.restart(state)
    assert queue.states == [
        (0, 4, RecordState.AVAILABLE, 0),
        (4, 6, RecordState.ACKNOWLEDGED, 1),
        (6, 8, RecordState.AVAILABLE, 1),
    ]
    assert [(one.offsets.start, one.delivery_count) for one in queue.acquired(BOB)] == [
        (0, 1),
        (6, 2),
        (8, 1),
    ]


def test_a_restored_partition_that_is_done_at_the_front_moves_on() -> None:
    """Kafka stores the start as it was before an acknowledgement; its records are read too."""
    state = ShareState(start_offset=0, batches=(StateBatch(0, 5, ACCEPTED),))
    partition = SharePartition.restored(state, terms=Queue().terms)
    assert (partition.start_offset, partition.complete_count) == (5, 0)
    assert partition.has_unsaved_change


def test_records_deleted_while_nobody_looked_are_stored_with_the_next_change() -> None:
    queue = Queue((0, 10), (10, 20))
    queue.acquire(records_max=10)
    queue.acknowledge(2, 4)
    state = stored(queue)
    queue.partition.move_start_to(3)
    assert stored(queue, state) == ShareState(start_offset=4, complete_count=0, batches=())


def test_a_later_change_counts_more_than_an_earlier_one() -> None:
    first = StateChange(
        start_offset=0, complete_count=0, batches=(StateBatch(2, 8, AVAILABLE_ONCE),)
    )
    second = StateChange(start_offset=3, complete_count=1, batches=(StateBatch(5, 6, ACCEPTED),))
    assert ShareState().changed(first).changed(second) == ShareState(
        start_offset=3,
        complete_count=1,
        batches=(
            StateBatch(3, 5, AVAILABLE_ONCE),
            StateBatch(5, 6, ACCEPTED),
            StateBatch(6, 8, AVAILABLE_ONCE),
        ),
    )


def test_a_state_is_cut_where_the_log_ends() -> None:
    batches = (
        StateBatch(2, 4, ACCEPTED),
        StateBatch(4, 8, AVAILABLE_ONCE),
        StateBatch(8, 9, ACCEPTED),
    )
    state = ShareState(start_offset=1, complete_count=3, batches=batches)
    assert state.reaches_beyond(8)
    assert not state.reaches_beyond(9)
    assert state.cut_to(5) == ShareState(
        start_offset=1,
        complete_count=2,
        batches=(StateBatch(2, 4, ACCEPTED), StateBatch(4, 5, AVAILABLE_ONCE)),
    )
    assert state.cut_to(0) == ShareState(start_offset=0)
