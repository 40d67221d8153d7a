import asyncio
from typing import Any

import pytest

from millstream.base.disk import Bytes, DiskFile
from millstream.broker.handlers import HANDLERS, Call
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.support.batches import batch, split
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import CLIENT_ID, PEER, Serve, ServedNode, produce_request
from tests.support.simulated_disk import SimulatedDisk, SimulatedFile

MIB = 1 << 20
BATCH_BYTES = len(batch(b"x" * 100))
BY_NAME, BY_ID = 12, 17
LONG_MS = 60_000


def fetch_request(
    *partitions: int,
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    offset: int = 0,
    epoch: int = -1,
    **limits: Any,
) -> FetchRequest:
    places = [
        FetchPartition(
            partition=number,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            partition_max_bytes=MIB,
        )
        for number in partitions or (0,)
    ]
    wanted = FetchTopic(topic=topic, topic_id=topic_id, partitions=places)
    return FetchRequest(topics=[wanted], **{"min_bytes": 1, "max_wait_ms": 0} | limits)


def parts(answer: FetchResponse) -> list[PartitionData]:
    return [part for topic in answer.responses for part in topic.partitions]


def batches(part: PartitionData) -> int:
    records = part.records or b""
    assert isinstance(records, bytes | bytearray | memoryview)
    return len(list(split(memoryview(records))))


def fetch(served: ServedNode, request: FetchRequest, version: int = BY_NAME) -> list[PartitionData]:
    return parts(served.ask(request, version))


def produce_batches(served: ServedNode, count: int, *, partition: int = 0) -> None:
    for _ in range(count):
        served.produce(b"x" * 100, partition=partition)


# --- what is read -----------------------------------------------------------------------------


def test_a_fetch_brings_whole_batches_and_says_how_far_the_log_goes(served: ServedNode) -> None:
    served.create()
    produce_batches(served, 3)
    (part,) = fetch(served, fetch_request(offset=1))
    assert batches(part) == 2
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (3, 3, 0)


def test_records_that_are_not_synced_are_not_seen(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    task = served.ask_soon(produce_request(b"a"))
    gate.until_a_sync_waits()
    (part,) = fetch(served, fetch_request())
    assert (part.high_watermark, bytes(part.records or b"")) == (0, b"")  # type: ignore[arg-type] # one buffer
    gate.open_gate()
    served.settle()
    assert task.done()
    assert batches(fetch(served, fetch_request())[0]) == 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, 1), (1, 1), (BATCH_BYTES, 1), (2 * BATCH_BYTES - 1, 1), (2 * BATCH_BYTES, 2)],
)
@pytest.mark.parametrize("name", ["partition_max_bytes", "max_bytes"])
def test_a_limit_is_kept_but_for_one_batch_that_always_comes(
    served: ServedNode, name: str, limit: int, expected: int
) -> None:
    served.create()
    produce_batches(served, 3)
    request = fetch_request()
    if name == "max_bytes":
        request.max_bytes = limit
    else:
        request.topics[0].partitions[0].partition_max_bytes = limit
    (part,) = fetch(served, request)
    assert batches(part) == expected


def test_the_limit_of_a_response_counts_over_all_partitions(served: ServedNode) -> None:
    served.create("orders", 3)
    for number in range(3):
        produce_batches(served, 2, partition=number)
    found = fetch(served, fetch_request(0, 1, 2, max_bytes=3 * BATCH_BYTES))
    assert [batches(part) for part in found] == [2, 1, 0]


def test_only_the_first_batch_may_be_larger_than_what_is_left(served: ServedNode) -> None:
    served.create("orders", 2)
    produce_batches(served, 1)
    served.produce(b"y" * 10_000, partition=1)
    found = fetch(served, fetch_request(0, 1, max_bytes=2 * BATCH_BYTES))
    assert [batches(part) for part in found] == [1, 0]
    found = fetch(served, fetch_request(1, 0, max_bytes=2 * BATCH_BYTES))
    assert [batches(part) for part in found] == [1, 0]
    assert found[0].partition_index == 1


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (fetch_request(topic="nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(offset=-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_request(offset=9), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_request(offset=2), ErrorCode.NONE),
        (fetch_request(epoch=0), ErrorCode.NONE),
        (fetch_request(epoch=1), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_is_not_there_is_an_error_of_its_partition(
    served: ServedNode, request_: FetchRequest, code: ErrorCode
) -> None:
    served.create()
    produce_batches(served, 2)
    (part,) = fetch(served, request_)
    assert part.error_code == code
    assert part.records is not None, "librdkafka cannot read null, and would not see the error"


def test_an_older_leader_epoch_is_fenced(serve: Serve) -> None:
    served = serve()
    served.create()
    served.crash()
    (part,) = fetch(serve(), fetch_request(epoch=0))
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_from_version_13_on_topics_have_ids(served: ServedNode) -> None:
    topic = served.create()
    produce_batches(served, 1)
    answer = served.ask(fetch_request(topic_id=topic.id), BY_ID)
    assert answer.responses[0].topic_id == topic.id
    assert batches(parts(answer)[0]) == 1


@pytest.mark.parametrize("topic_id", [b"\x01" * 16, bytes(16)])
def test_an_id_that_no_topic_has_is_refused(served: ServedNode, topic_id: bytes) -> None:
    served.create()
    answer = served.ask(fetch_request(topic_id=topic_id), BY_ID)
    assert answer.responses[0].topic_id == topic_id
    assert parts(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_id_of_a_deleted_topic_does_not_find_its_successor(served: ServedNode) -> None:
    old = served.create()
    served.run(served.node.topics.delete(old))
    served.create()
    (part,) = fetch(served, fetch_request(topic_id=old.id), BY_ID)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_error_in_one_partition_does_not_keep_the_others(served: ServedNode) -> None:
    served.create()
    produce_batches(served, 1)
    broken, fine = fetch(served, fetch_request(5, 0, max_wait_ms=LONG_MS, min_bytes=MIB))
    assert broken.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert batches(fine) == 1


# --- waiting ----------------------------------------------------------------------------------


def watchers(served: ServedNode) -> int:
    return sum(len(p.watchers) for topic in served.node.topics for p in topic.partitions)


def test_a_fetch_at_the_end_waits_for_the_next_record(served: ServedNode) -> None:
    served.create()
    task = served.ask_soon(fetch_request(max_wait_ms=LONG_MS), BY_NAME)
    served.advance(10)
    assert not task.done()
    served.produce(b"new")
    served.turn()
    assert batches(parts(task.result())[0]) == 1
    assert watchers(served) == 0


def test_it_waits_for_as_many_bytes_as_it_asked_for(served: ServedNode) -> None:
    served.create("orders", 2)
    request = fetch_request(0, 1, max_wait_ms=LONG_MS, min_bytes=3 * BATCH_BYTES)
    task = served.ask_soon(request, BY_NAME)
    for partition in (0, 1):
        produce_batches(served, 1, partition=partition)
        served.turn()
        assert not task.done()
    produce_batches(served, 1)
    served.turn()
    assert [batches(part) for part in parts(task.result())] == [2, 1]


@pytest.mark.parametrize("name", ["partition_max_bytes", "max_bytes"])
def test_it_does_not_wait_for_more_than_its_limits_let_it_bring(
    served: ServedNode, name: str
) -> None:
    """Whole batches hardly ever fill a limit to the last byte."""
    served.create("orders", 2)
    produce_batches(served, 3)
    request = fetch_request(0, 1, max_wait_ms=LONG_MS, min_bytes=MIB)
    target = request if name == "max_bytes" else request.topics[0].partitions[0]
    setattr(target, name, 2 * BATCH_BYTES + 1)
    task = served.ask_soon(request, BY_NAME)
    assert batches(parts(task.result())[0]) == 2


def test_a_partition_that_found_no_room_is_not_waited_for_either(served: ServedNode) -> None:
    served.create("orders", 2)
    for number in (0, 1):
        produce_batches(served, 1, partition=number)
    request = fetch_request(0, 1, max_wait_ms=LONG_MS, min_bytes=MIB, max_bytes=BATCH_BYTES)
    task = served.ask_soon(request, BY_NAME)
    assert [batches(part) for part in parts(task.result())] == [1, 0]


def test_when_its_time_is_up_it_brings_what_there_is(served: ServedNode) -> None:
    served.create()
    produce_batches(served, 1)
    request = fetch_request(max_wait_ms=500, min_bytes=MIB)
    task = served.ask_soon(request, BY_NAME)
    served.advance(0.4)
    assert not task.done()
    served.advance(0.2)
    assert batches(parts(task.result())[0]) == 1
    assert watchers(served) == 0


def test_a_record_that_comes_between_the_read_and_the_wait_is_not_missed(
    served: ServedNode,
) -> None:
    """The read is done when the request arrives, the wait begins a round of the loop later."""
    (partition,) = served.create().partitions
    partition.append(batch(b"just now"), now_ms=served.now_ms)
    call = Call(served.node, BY_NAME, CLIENT_ID, PEER)

    async def begin() -> Any:
        return HANDLERS[ApiKey.FETCH].function(fetch_request(max_wait_ms=LONG_MS), call)

    waiting = served.run(begin())
    partition.log.sync(now_ms=served.now_ms)
    partition.settle()
    task = served.start(waiting)
    assert batches(parts(task.result())[0]) == 1


def test_a_fetch_whose_topic_is_deleted_meanwhile_hears_of_it(served: ServedNode) -> None:
    topic = served.create()
    task = served.ask_soon(fetch_request(max_wait_ms=LONG_MS), BY_NAME)
    served.run(served.node.topics.delete(topic))
    served.turn()
    assert parts(task.result())[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_that_are_added_meanwhile_do_not_disturb_it(served: ServedNode) -> None:
    topic = served.create()
    task = served.ask_soon(fetch_request(max_wait_ms=LONG_MS), BY_NAME)
    served.run(served.node.topics.add_partitions(topic, 2))
    served.produce(b"elsewhere", partition=1)
    served.turn()
    assert not task.done()
    served.produce(b"here")
    served.turn()
    assert batches(parts(task.result())[0]) == 1


def test_a_fetch_that_is_given_up_leaves_no_watcher_and_no_timer(served: ServedNode) -> None:
    served.create("orders", 2)
    task = served.ask_soon(fetch_request(0, 1, max_wait_ms=LONG_MS), BY_NAME)
    assert watchers(served) == 2
    task.cancel()
    served.turn()
    assert watchers(served) == 0
    timers = [t for t in served.loop._scheduled if not t.cancelled()]  # type: ignore[attr-defined] # asyncio's own list
    assert not timers


def test_a_cut_log_wakes_nobody_for_ever(served: ServedNode) -> None:
    """Records deleted below the position of a waiting fetch: it hears OFFSET_OUT_OF_RANGE."""
    (partition,) = served.create().partitions
    produce_batches(served, 2)
    task = served.ask_soon(fetch_request(min_bytes=MIB, max_wait_ms=1_000), BY_NAME)
    served.node.topics.delete_records(partition, 2)
    served.advance(2)
    assert parts(task.result())[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- cold reads -------------------------------------------------------------------------------


class ColdFile(SimulatedFile):
    def read_cached(self, position: int, size: int) -> Bytes | None:
        return None


class ColdDisk(SimulatedDisk):
    """Nothing is in the page cache."""

    def open(self, path: Any) -> DiskFile:
        file = super().open(path)
        assert isinstance(file, SimulatedFile)
        file.__class__ = ColdFile
        return file


def test_bytes_that_are_not_in_memory_are_read_in_a_thread(serve: Serve, tmp_path: Any) -> None:
    served = serve(disk=ColdDisk(tmp_path / "data"))
    served.create("orders", 2)
    for number in (0, 1):
        produce_batches(served, 2, partition=number)
    found = fetch(served, fetch_request(0, 1))
    assert [batches(part) for part in found] == [2, 2]


def test_a_waiting_fetch_may_end_in_a_cold_read(serve: Serve, tmp_path: Any) -> None:
    served = serve(disk=ColdDisk(tmp_path / "data"))
    served.create()

    async def both() -> FetchResponse:
        waiting = served.loop.create_task(
            served.answer(fetch_request(max_wait_ms=LONG_MS), BY_NAME)
        )
        await served.answer(produce_request(b"new"), 12)
        answer = await waiting
        assert isinstance(answer, FetchResponse)
        return answer

    assert batches(parts(served.run(both()))[0]) == 1


# --- sessions (KIP-227) ---------------------------------------------------------------------------


def numbers(answer: FetchResponse) -> list[int]:
    return [part.partition_index for part in parts(answer)]


def opened(served: ServedNode, *partitions: int, **more: Any) -> FetchResponse:
    answer: FetchResponse = served.ask(fetch_request(*partitions, session_epoch=0, **more), BY_NAME)
    assert answer.error_code == ErrorCode.NONE
    assert answer.session_id > 0
    return answer


def go_on(served: ServedNode, session_id: int, epoch: int, **changes: Any) -> FetchResponse:
    """The next request of a session, which names no partition unless `changes` do."""
    request = FetchRequest(session_id=session_id, session_epoch=epoch, **changes)
    answer: FetchResponse = served.ask(request, BY_NAME)
    return answer


def test_a_session_answers_with_what_is_new(served: ServedNode) -> None:
    served.create(partitions=3)
    first = opened(served, 0, 1, 2)
    assert numbers(first) == [0, 1, 2]
    assert numbers(go_on(served, first.session_id, 1)) == []
    served.produce(b"a", partition=1)
    second = go_on(served, first.session_id, 2)
    assert (second.session_id, numbers(second)) == (first.session_id, [1])


def test_a_session_fetches_from_where_its_client_has_come_to(served: ServedNode) -> None:
    served.create(partitions=2)
    served.produce(b"a", partition=1)
    session_id = opened(served, 0, 1).session_id
    moved = fetch_request(1, offset=1).topics
    assert numbers(go_on(served, session_id, 1, topics=moved)) == []
    served.produce(b"b", partition=1)
    assert batches(parts(go_on(served, session_id, 2))[0]) == 1


def test_a_session_forgets_partitions_and_takes_new_ones(served: ServedNode) -> None:
    served.create(partitions=3)
    session_id = opened(served, 0, 1).session_id
    forgotten = [ForgottenTopic(topic="orders", partitions=[0])]
    added = fetch_request(2).topics
    changed = go_on(served, session_id, 1, topics=added, forgotten_topics_data=forgotten)
    assert numbers(changed) == [2]
    for number in range(3):
        served.produce(b"a", partition=number)
    assert numbers(go_on(served, session_id, 2)) == [1, 2]


def test_a_session_that_has_become_empty_is_answered_at_once(served: ServedNode) -> None:
    """There is nothing to wait for, and another request may be behind it."""
    served.create()
    session_id = opened(served, 0).session_id
    all_of_it = [ForgottenTopic(topic="orders", partitions=[0])]
    asked = FetchRequest(
        session_id=session_id,
        session_epoch=1,
        max_wait_ms=LONG_MS,
        min_bytes=1,
        forgotten_topics_data=all_of_it,
    )
    answer = served.ask_soon(asked, BY_NAME)
    served.run(asyncio.sleep(0))
    assert answer.done()
    assert answer.result().session_id == 0


@pytest.mark.parametrize(
    ("step", "epoch", "version", "code"),
    [
        (0, 2, BY_NAME, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, BY_ID, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (0, 1, BY_NAME, ErrorCode.NONE),
    ],
)
def test_a_request_that_does_not_fit_its_session_is_refused(
    served: ServedNode, step: int, epoch: int, version: int, code: ErrorCode
) -> None:
    served.create()
    session_id = opened(served).session_id + step
    answer = served.ask(FetchRequest(session_id=session_id, session_epoch=epoch), version)
    assert answer.error_code == code


def test_a_session_ends_when_its_client_says_so(served: ServedNode) -> None:
    served.create()
    session_id = opened(served).session_id
    last = go_on(served, session_id, -1, topics=fetch_request(0).topics)
    assert (last.session_id, numbers(last)) == (0, [0])
    assert go_on(served, session_id, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(served.node.fetch_sessions) == 0


def test_a_new_session_ends_the_one_that_it_names(served: ServedNode) -> None:
    served.create()
    old = opened(served).session_id
    opened(served, session_id=old)
    assert go_on(served, old, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(served.node.fetch_sessions) == 1


def test_an_error_is_said_again_and_its_end_too(served: ServedNode) -> None:
    session_id = opened(served, 0).session_id
    for epoch in (1, 2):
        [part] = parts(go_on(served, session_id, epoch))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    served.create()
    [part] = parts(go_on(served, session_id, 3))
    assert part.error_code == ErrorCode.NONE


def test_a_partition_that_gives_records_waits_for_the_others_next_time(served: ServedNode) -> None:
    served.create(partitions=2)
    produce_batches(served, 5, partition=0)
    produce_batches(served, 5, partition=1)
    session_id = opened(served, 0, 1, max_bytes=BATCH_BYTES).session_id
    answer = go_on(served, session_id, 1, max_bytes=BATCH_BYTES)
    [part] = [part for part in parts(answer) if part.records]
    assert part.partition_index == 1


def test_a_session_wakes_for_a_partition_that_its_request_did_not_name(served: ServedNode) -> None:
    served.create(partitions=2)
    session_id = opened(served, 0, 1).session_id
    request = FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=LONG_MS, min_bytes=1)
    waiting = served.ask_soon(request, BY_NAME)
    assert not waiting.done()
    served.produce(b"a", partition=1)
    assert numbers(served.run(waiting)) == [1]


def test_another_users_session_is_not_found(served: ServedNode) -> None:
    served.create()
    session_id = opened(served).session_id
    served.principal = "User:eve"
    assert go_on(served, session_id, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert go_on(served, session_id, -1).error_code == ErrorCode.NONE
    assert len(served.node.fetch_sessions) == 1
