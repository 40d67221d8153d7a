"""The records of streams groups: Kafka's bytes, and back."""

import pytest

from millstream.base.errors import Corrupt
from millstream.broker.groups.consumer_member import MemberState
from millstream.broker.groups.group_records import read_key
from millstream.broker.streams.streams_facts import (
    GROUP_KEY,
    TARGET_KEY,
    TOPOLOGY_KEY,
    StreamsFact,
    StreamsFactKey,
    StreamsFactKind,
    StreamsGroupFact,
    StreamsTargetFact,
)
from millstream.broker.streams.streams_member import StreamsProfile, StreamsProgress
from millstream.broker.streams.streams_messages import UserEndpoint
from millstream.broker.streams.streams_records import (
    read_streams_fact,
    streams_fact_key,
    streams_fact_value,
)
from millstream.broker.streams.task import Tasks
from millstream.broker.streams.topology import CopartitionGroup, Subtopology, Topology
from tests.unit.broker.streams.steps import COUNTING, task

MEMBER_KEY = StreamsFactKey(StreamsFactKind.MEMBER, "ada")
TARGET_OF_ADA = StreamsFactKey(StreamsFactKind.TARGET_OF_MEMBER, "ada")
PROGRESS_KEY = StreamsFactKey(StreamsFactKind.PROGRESS, "ada")

SPELLED: list[tuple[StreamsFactKey, StreamsFact, bytes, bytes]] = [
    (
        GROUP_KEY,
        StreamsGroupFact(epoch=3, metadata_hash=5, validated_epoch=0, standbys=1),
        b"\0\x11" b"\0\3app",
        b"\0\0" b"\0\0\0\3" b"\0\0\0\0\0\0\0\5"
        b"\2" b"\0\4\0\0\0\0" b"\1\x19\2\x15num.standby.replicas\0021\0",
    ),
    (
        TARGET_KEY,
        StreamsTargetFact(epoch=3, assigned_ms=258),
        b"\0\x14" b"\0\3app",
        b"\0\0" b"\0\0\0\3" b"\1" b"\0\x08\0\0\0\0\0\0\1\2",
    ),
    (
        MEMBER_KEY,
        StreamsProfile(
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=16,
            topology_epoch=0,
            process_id="p",
            endpoint=UserEndpoint(host="e", port=258),
            client_tags=(("k", "v"),),
        ),
        b"\0\x13" b"\0\3app" b"\0\3ada",
        b"\0\0" b"\0\0" b"\2c" b"\3/h" b"\0\0\0\x10" b"\0\0\0\0" b"\2p" b"\1\2e\1\2\0"
        b"\2\2k\2v\0" b"\0",
    ),
    (
        TARGET_OF_ADA,
        Tasks(active=frozenset({task(0, 1), task(0, 0)}), standby=frozenset({task(1, 2)})),
        b"\0\x15" b"\0\3app" b"\0\3ada",
        b"\0\0" b"\2\0020\3\0\0\0\0\0\0\0\1\0" b"\2\0021\2\0\0\0\2\0" b"\1" b"\0",
    ),
    (
        PROGRESS_KEY,
        StreamsProgress(
            epoch=4,
            previous_epoch=3,
            state=MemberState.UNREVOKED_PARTITIONS,
            active={task(0, 0): 2},
            revoking_standby=frozenset({task(1, 0)}),
        ),
        b"\0\x16" b"\0\3app" b"\0\3ada",
        b"\0\0" b"\0\0\0\4" b"\0\0\0\3" b"\2" b"\2\0020\2\0\0\0\0\1\0\5\2\0\0\0\2" b"\1\1"
        b"\1" b"\2\0021\2\0\0\0\0\0" b"\1" b"\0",
    ),
    (
        TOPOLOGY_KEY,
        Topology(
            epoch=1,
            subtopologies=(
                Subtopology(
                    id="0",
                    source_topics=("a", "b"),
                    copartition_groups=(CopartitionGroup(source_topics=(0, 1)),),
                ),
            ),
        ),
        b"\0\x17" b"\0\3app",
        b"\0\0" b"\0\0\0\1" b"\2\0020" b"\3\2a\2b" b"\1\1\1\1" b"\2\3\0\0\0\1\1\1\0" b"\0" b"\0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "fact", "key_bytes", "value"), SPELLED)
def test_a_fact_has_kafkas_bytes(
    key: StreamsFactKey, fact: StreamsFact, key_bytes: bytes, value: bytes
) -> None:
    assert streams_fact_key("app", key) == key_bytes
    assert streams_fact_value(fact) == value
    assert read_key(key_bytes) == ("app", key)
    assert read_streams_fact(key, value) == fact


def test_a_topology_is_read_as_it_was_written() -> None:
    assert read_streams_fact(TOPOLOGY_KEY, streams_fact_value(COUNTING)) == COUNTING


def test_tasks_without_epochs_of_their_own_have_the_members() -> None:
    progress = StreamsProgress(epoch=4, active={task(0, 0): 2})
    value = streams_fact_value(progress).replace(b"\1\0\5\2\0\0\0\2", b"\0")
    read = read_streams_fact(PROGRESS_KEY, value)
    assert isinstance(read, StreamsProgress)
    assert read.active == {task(0, 0): 4}


@pytest.mark.parametrize("value", [b"", b"\0\7", b"\0\0\0", b"\0\0" + b"\xff" * 9])
@pytest.mark.parametrize("key", [one[0] for one in SPELLED])
def test_what_cannot_be_read_stops_the_start(key: StreamsFactKey, value: bytes) -> None:
    with pytest.raises(Corrupt, match="__consumer_offsets"):
        read_streams_fact(key, value)
