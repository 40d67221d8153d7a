"""Records that a share group gives up on: kept in its dead-letter topic, with their history."""

import asyncio
import logging
from typing import Any

import pytest

from millstream.base.record import Record
from millstream.broker.sharing import dead_letters
from millstream.broker.wire import ErrorCode
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import decode_records, encode_batch, read_header
from tests.support.served_node import Serve, ServedNode
from tests.support.share_member import ACCEPT, REJECT, RELEASE, ShareMember, set_group_config
from tests.support.simulated_disk import SimulatedDisk

LOCK_S = 30.0
DEAD = "orders.dead"


def queue(serve: Serve, *values: bytes, dead: str = DEAD, **config: Any) -> ServedNode:
    served = serve(**config)
    served.create("orders", message_timestamp_type="CreateTime")
    served.produce(*values)
    set_group_config(
        served, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=dead
    )
    return served


def letters(served: ServedNode, topic: str = DEAD) -> list[Record]:
    """All that is in the dead-letter topic, if there is one."""
    if topic not in served.node.topics:
        return []
    found: list[Record] = []
    for partition in served.node.topics.named(topic).partitions:
        span = partition.log.read(partition.log.start_offset, bytes_max=1 << 20)
        position = 0
        while position < len(span):
            size = read_header(span, position).size_bytes
            found += decode_records(span[position : position + size])
            position += size
    return found


def history(letter: Record) -> dict[str, str]:
    return {
        name.removeprefix("__dlq.errors."): (value or b"").decode()
        for name, value in letter.headers
        if name.startswith("__dlq.errors.")
    }


def test_a_rejected_record_becomes_a_dead_letter_with_its_history(serve: Serve) -> None:
    served = queue(serve, b"a", b"b")
    ada = ShareMember(served)
    ada.fetch()
    served.advance(10)
    assert ada.acknowledge((0, 0, ACCEPT), (1, 1, REJECT)) == ErrorCode.NONE
    [letter] = letters(served)
    assert letter.value == b"b"
    assert letter.timestamp_ms == served.now_ms
    assert history(letter) == {
        "topic": "orders",
        "partition": "0",
        "offset": "1",
        "group": "workers",
        "delivery.count": "1",
        "message": "it was rejected",
        "member": "ada",
        "timestamp": str(served.now_ms - 10_000),
    }


def test_a_record_whose_deliveries_are_used_up_becomes_a_dead_letter(serve: Serve) -> None:
    served = queue(serve, b"a")
    set_group_config(served, share_delivery_count_limit="2")
    ada, bob = ShareMember(served), ShareMember(served, member_id="bob")
    ada.fetch()
    ada.acknowledge((0, 0, RELEASE))
    assert bob.fetch() == [(0, b"a", 2)]
    served.advance(LOCK_S + 1)
    until_buried(served)
    [letter] = letters(served)
    told = history(letter)
    assert (told["delivery.count"], told["member"]) == ("2", "bob")
    assert told["message"] == "its deliveries are used up"
    assert ada.fetch() == []


def test_a_record_that_kills_its_workers_becomes_a_dead_letter(serve: Serve) -> None:
    served = queue(serve, b"a")
    set_group_config(served, share_delivery_count_limit="2")
    for name in ("ada", "bob"):
        member = ShareMember(served, member_id=name)
        assert len(member.fetch()) == 1
        assert letters(served) == []
        member.disconnect()
    until_buried(served)
    [letter] = letters(served)
    assert (history(letter)["member"], history(letter)["delivery.count"]) == ("bob", "2")


def test_a_letter_that_is_sent_again_keeps_its_past(serve: Serve) -> None:
    """The headers of the record come first."""
    served = queue(serve, b"a")
    for _ in range(2):
        ada = ShareMember(served)
        [(offset, _, _)] = ada.fetch()
        ada.acknowledge((offset, offset, REJECT))
        send_again(served, letters(served)[-1])
    names = [name for name, _ in letters(served)[-1].headers]
    assert names.count("__dlq.errors.offset") == 2


def send_again(served: ServedNode, letter: Record) -> None:
    partition = served.node.topics.named("orders").partitions[0]
    appended = partition.append(memoryview(encode_batch([letter])), now_ms=served.now_ms)
    served.run(served.commit.durable(partition, appended))


def until_buried(served: ServedNode) -> None:
    async def wait() -> None:
        while served.node.share_partitions.is_burying:  # noqa: ASYNC110 - threads are at work
            await asyncio.sleep(0)

    served.run(wait())


def test_without_a_dead_letter_topic_a_rejected_record_is_only_done_with(serve: Serve) -> None:
    served = queue(serve, b"a", dead="")
    ada = ShareMember(served)
    ada.fetch()
    assert ada.acknowledge((0, 0, REJECT)) == ErrorCode.NONE
    assert [topic.name for topic in served.node.topics if not topic.is_internal] == ["orders"]
    assert ada.fetch() == []


def test_the_dead_letter_topic_is_made_and_keeps_what_it_gets(serve: Serve) -> None:
    served = queue(serve, b"a")
    ada = ShareMember(served)
    ada.fetch()
    ada.acknowledge((0, 0, REJECT))
    assert served.node.topics.named(DEAD).overrides["retention.ms"] == "-1"


def test_a_record_whose_letter_cannot_be_written_stays_in_its_queue(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = queue(serve, b"a", auto_create_topics=False)
    ada = ShareMember(served)
    caplog.set_level(logging.ERROR)
    for delivery_count in (1, 1, 1):
        assert ada.fetch() == [(0, b"a", delivery_count)]
        assert ada.acknowledge((0, 0, REJECT)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ada.fetch() == []
        served.advance(LOCK_S + 1)
    said = [one.message for one in caplog.records if "dead letters" in one.message]
    assert len(said) == 1
    assert "workers" in said[0]
    assert DEAD in said[0]
    assert "the records stay in the queue and come again" in said[0]
    served.create(DEAD)
    assert ada.fetch() == [(0, b"a", 1)]
    assert ada.acknowledge((0, 0, REJECT)) == ErrorCode.NONE
    assert [letter.value for letter in letters(served)] == [b"a"]
    served.advance(LOCK_S + 1)
    assert ada.fetch() == []


def test_a_dead_letter_topic_is_made_up_to_the_bound_of_all_partitions(serve: Serve) -> None:
    """A group's config names it: such topics are none that somebody asked to create."""
    served = queue(serve, b"a", auto_create_partitions_max=1)
    ada = ShareMember(served)
    ada.fetch()
    ada.acknowledge((0, 0, REJECT))
    assert DEAD not in served.node.topics


def test_others_go_on_while_a_letter_cannot_be_written(serve: Serve, disk: SimulatedDisk) -> None:
    served = queue(serve, b"a", b"b", auto_create_topics=False)
    ada = ShareMember(served)
    ada.fetch()
    assert ada.acknowledge((0, 0, REJECT)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ada.acknowledge((1, 1, ACCEPT)) == ErrorCode.NONE
    served.crash()
    again = serve()
    assert ShareMember(again).fetch() == [(0, b"a", 1)]


def test_a_record_stays_in_its_queue_when_its_letter_does_not_reach_the_disk(
    serve: Serve, disk: SimulatedDisk
) -> None:
    served = queue(serve, b"a")
    served.create(DEAD)
    ada = ShareMember(served)
    ada.fetch()
    disk.fail_syncs(lambda path: path.parent.name == f"{DEAD}-0")
    assert ada.acknowledge((0, 0, REJECT)) == ErrorCode.KAFKA_STORAGE_ERROR
    served.advance(LOCK_S + 1)
    assert ada.fetch() == [(0, b"a", 1)]
    served.crash()


def test_a_record_that_is_gone_leaves_no_letter(serve: Serve) -> None:
    served = queue(serve, b"a", b"b")
    ada = ShareMember(served)
    ada.fetch()
    served.node.topics.delete_records(ada.topic.partitions[0], 1)
    assert ada.acknowledge((0, 1, REJECT)) == ErrorCode.NONE
    assert [letter.value for letter in letters(served)] == [b"b"]


def test_many_letters_are_written_in_batches_that_the_topic_takes(serve: Serve) -> None:
    served = queue(serve, *[b"x" * 500] * 50)
    served.create(DEAD, max_message_bytes="5000")
    ada = ShareMember(served)
    ada.fetch()
    assert ada.acknowledge((0, 49, REJECT)) == ErrorCode.NONE
    assert len(letters(served)) == 50


def test_letters_of_what_is_left_are_written_when_the_log_begins_later_meanwhile(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = queue(serve, b"a", b"b")
    served.produce(b"c")
    read = dead_letters._read

    def trim_and_read(log: PartitionLog, *wanted: Any) -> dead_letters.GivenUp:
        served.node.directory.delete_records(("orders", 0), 2)
        return read(log, *wanted)

    monkeypatch.setattr(dead_letters, "_read", trim_and_read)
    ada = ShareMember(served)
    ada.fetch()
    assert ada.acknowledge((0, 2, REJECT)) == ErrorCode.NONE
    assert [letter.value for letter in letters(served)] == [b"c"]


def test_records_of_one_batch_that_are_given_up_one_by_one_are_read_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = queue(serve, *[b"x"] * 100)
    reads: list[int] = []
    read = dead_letters._read

    def count_and_read(log: PartitionLog, *wanted: Any) -> dead_letters.GivenUp:
        reads.append(1)
        return read(log, *wanted)

    monkeypatch.setattr(dead_letters, "_read", count_and_read)
    ada = ShareMember(served)
    ada.fetch()
    assert ada.acknowledge(*((n, n, REJECT) for n in range(0, 100, 2))) == ErrorCode.NONE
    assert [letter.offset for letter in letters(served)] == [*range(50)]
    assert {history(letter)["offset"] for letter in letters(served)} == {
        str(n) for n in range(0, 100, 2)
    }
    assert len(reads) == 1
