"""A transaction, cut off between any two steps, is whole or not there; in both flows.

The disk is simulated: before every call that changes it, what each kind of power cut would leave
is kept aside, a new broker starts from it, and the producer (or its successor) goes on.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.broker.groups.group_offsets import TopicPartition
from millstream.broker.wire import ErrorCode
from tests.support.recording_disk import Leftovers, RecordingDisk, restarted
from tests.support.served_node import ServedNode
from tests.support.simulated_disk import Survival
from tests.support.transactions import Flow, Producer, read_committed

PLACE = TopicPartition("orders", 0)
BEFORE, DURING = 1, 2
FLOWS = pytest.mark.parametrize("flow", list(Flow), ids=lambda flow: flow.name.lower())
OUTCOMES = pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])


def write_all(producer: Producer, value: bytes, offset: int) -> None:
    """A record in each of two topics, and an offset."""
    assert producer.send("orders", value) == 0
    assert producer.send("audit", value) == 0
    assert producer.send_offset("orders", offset) == 0


@dataclass
class Recorded:
    """What is left of a second transaction, at any moment: of its writes, and of its end."""

    producer: Producer
    writing: Leftovers
    ending: Leftovers


def recorded(tmp_path: Path, flow: Flow, *, is_commit: bool) -> Recorded:
    disk = RecordingDisk(tmp_path)
    served = ServedNode(tmp_path, disk=disk)
    served.create("orders")
    served.create("audit")
    producer = Producer(served, flow=flow)
    assert producer.init() == 0
    write_all(producer, b"before", BEFORE)
    assert producer.commit() == 0
    disk.start()
    write_all(producer, b"during", DURING)
    writer, count = producer.who, len(disk.leftovers)
    assert producer.end(is_commit=is_commit) == 0
    leftovers = disk.stop()
    served.close()
    producer.who = writer
    return Recorded(producer, leftovers[:count], leftovers[count:])


def outcome(served: ServedNode) -> bool:
    """Whether the second transaction is there; fails if only a part of it is."""
    orders, audit = read_committed(served, "orders"), read_committed(served, "audit")
    assert orders[0] == audit[0] == b"before"
    offset = committed_offset(served)
    parts = {b"during" in orders, b"during" in audit, offset == DURING}
    assert len(parts) == 1, (orders, audit, offset)
    return parts.pop()


def committed_offset(served: ServedNode) -> int:
    group = served.node.groups.find("readers")
    committed = group.offsets.fetch(PLACE) if group else None
    assert committed is not None
    return committed.offset


def assert_all_stable(served: ServedNode, moment: str) -> None:
    for topic in served.node.topics:
        for partition in topic.partitions:
            log = partition.log
            assert log.last_stable_offset == log.high_watermark, f"{moment}: {log.name}"


def successor(served: ServedNode, flow: Flow) -> Producer:
    producer = Producer(served, flow=flow)
    assert producer.init() == 0
    return producer


@FLOWS
@OUTCOMES
def test_after_a_crash_a_successor_finds_all_or_nothing(
    tmp_path: Path, flow: Flow, is_commit: bool
) -> None:
    left = recorded(tmp_path, flow, is_commit=is_commit)
    seen = set()
    for moment, served in restarted(tmp_path, left.writing + left.ending):
        producer = successor(served, flow)
        is_there = outcome(served)
        seen.add(is_there)
        assert_all_stable(served, moment)
        write_all(producer, b"after", 3)
        assert producer.commit() == 0, moment
        expected = [b"before", b"during", b"after"] if is_there else [b"before", b"after"]
        assert read_committed(served, "orders") == expected, moment
        assert read_committed(served, "audit") == expected, moment
        assert committed_offset(served) == 3, moment
    assert seen == ({True, False} if is_commit else {False})


@FLOWS
@OUTCOMES
def test_after_a_crash_the_producer_can_end_what_it_began(
    tmp_path: Path, flow: Flow, is_commit: bool
) -> None:
    """Its writes were acknowledged, so a retry of EndTxn gives the outcome that it asks for."""
    left = recorded(tmp_path, flow, is_commit=is_commit)
    writer = left.producer.who
    for moment, served in restarted(tmp_path, left.ending):
        left.producer.served, left.producer.who = served, writer
        assert left.producer.end(is_commit=is_commit) == ErrorCode.NONE, moment
        assert outcome(served) == is_commit, moment
        assert_all_stable(served, moment)


@FLOWS
def test_an_answered_end_stands(tmp_path: Path, flow: Flow) -> None:
    """The last moment: after the answer, nothing depends on what was not synced."""
    for is_commit in (True, False):
        path = tmp_path / str(is_commit)
        path.mkdir()
        left = recorded(path, flow, is_commit=is_commit)
        for moment, served in restarted(path, left.ending[-len(Survival) :]):
            assert outcome(served) == is_commit, moment
            assert_all_stable(served, moment)


@FLOWS
def test_a_successor_cut_off_while_it_takes_over_leaves_nothing_half_done(
    tmp_path: Path, flow: Flow
) -> None:
    """InitProducerId ends what it finds open: that is an abort like any other."""
    disk = RecordingDisk(tmp_path)
    served = ServedNode(tmp_path, disk=disk)
    served.create("orders")
    served.create("audit")
    producer = successor(served, flow)
    write_all(producer, b"before", BEFORE)
    assert producer.commit() == 0
    write_all(producer, b"during", DURING)
    zombie = producer.who
    disk.start()
    successor(served, flow)
    leftovers = disk.stop()
    served.close()
    for moment, again in restarted(tmp_path, leftovers):
        later = successor(again, flow)
        assert not outcome(again), moment
        assert_all_stable(again, moment)
        producer.served, producer.who = again, zombie
        assert producer.commit() == ErrorCode.PRODUCER_FENCED, moment
        assert later.send("orders", b"after") == 0, moment
        assert later.commit() == 0, moment
