"""Kafka's DumpLogSegments reads our files: batches, both indexes, and producer snapshots.

Only for our broker: that Kafka can read its own files needs no test of ours.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AdminClient

from tests.clients.member_processes import Members
from tests.clients.share_group_steps import configure_group, join_share_group
from tests.clients.steps import Sent, create_topic, eventually, numbered, produce
from tests.support.java_tools import ToolRun, run_class

# The first test of a checkout may have to fetch the jars, and Java itself.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("kafka_tools")]

TOPIC = "dumped"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS_PER_CODEC = 3_000
# Kafka's smallest segment; the uncompressed third of 3 MB alone fills more than one.
SEGMENT_BYTES = 1024 * 1024
SHARE_RECORDS = {"10", "11", "12", "13", "14", "15"}
# What the tool prints of a file that is not in order; a record's own line starts with "|". Not
# "Non-consecutive offsets": it says so of every segment that does not start at 0, of Kafka's too.
COMPLAINT = re.compile(r"^(?!\|).*(mismatch|invalid|out of order|corrupt)", re.I)


@pytest.fixture(scope="module")
def partition_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one partition, in several segments, after a clean stop."""
    from millstream import Broker

    data_dir = tmp_path_factory.mktemp("data")
    with Broker(data_dir=data_dir, port=0) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create_topic(admin, TOPIC, config={"segment.bytes": str(SEGMENT_BYTES)})
        for codec in CODECS:
            fill(broker.bootstrap, codec)
    return data_dir / f"{TOPIC}-0"


def fill(bootstrap: str, codec: str) -> None:
    # Digits compress to about a half, so that every codec leaves batches worth an index entry.
    sent = [
        Sent(key=b"%d" % n, value=(b"%s %d " % (codec.encode(), n) + b"%d" % (7**n % 10**300)))
        for n in range(RECORDS_PER_CODEC)
    ]
    config = {"compression.type": codec, "batch.num.messages": 50, "enable.idempotence": True}
    produce(bootstrap, TOPIC, sent, config)


def dump(files: Sequence[Path], *flags: str) -> ToolRun:
    """Run the tool; it must end well and complain of nothing."""
    names = ",".join(str(path) for path in files)
    run = run_class("org.apache.kafka.tools.DumpLogSegments", "--files", names, *flags).checked()
    said = run.lines + run.stderr.splitlines()  # mismatches go to the latter
    complaints = [line for line in said if COMPLAINT.search(line)]
    assert complaints == []
    return run


def files_of(directory: Path, suffix: str) -> list[Path]:
    found = sorted(directory.glob(f"*{suffix}"))
    assert found, f"no {suffix} in {directory}"
    return found


def test_every_record_is_in_the_segments_once_and_in_order(partition_dir: Path) -> None:
    segments = files_of(partition_dir, ".log")
    assert len(segments) > 2
    dumped = dump(segments, "--deep-iteration", "--print-data-log")
    offsets = [
        int(found[1]) for line in dumped.lines if (found := re.match(r"\| offset: (\d+)", line))
    ]
    assert offsets == list(range(RECORDS_PER_CODEC * len(CODECS)))
    assert set(re.findall(r" compresscodec: (\w+)", dumped.stdout)) == set(CODECS)
    assert "key: 17 payload: zstd 17 " in dumped.stdout


def test_a_segment_is_named_for_its_first_offset(partition_dir: Path) -> None:
    for segment in files_of(partition_dir, ".log"):
        dumped = dump([segment])
        assert dumped.lines[1] == f"Log starting offset: {int(segment.stem)}"
        first_batch = re.search(r"^baseOffset: (\d+) ", dumped.stdout, re.MULTILINE)
        assert first_batch is not None
        assert int(first_batch[1]) == int(segment.stem)


def test_every_entry_of_the_offset_index_points_at_its_batch(partition_dir: Path) -> None:
    indexes = files_of(partition_dir, ".index")
    dump(indexes, "--verify-index-only")
    entries = re.findall(r"^offset: \d+ position: \d+", dump(indexes).stdout, re.MULTILINE)
    # At most one entry per index.interval.bytes (4096), and a batch here is larger than that.
    assert len(entries) > 100


def test_every_entry_of_the_time_index_is_true_and_in_order(partition_dir: Path) -> None:
    dumped = dump(files_of(partition_dir, ".timeindex"))
    times = [int(found) for found in re.findall(r"^timestamp: (\d+) offset", dumped.stdout, re.M)]
    assert len(times) >= len(files_of(partition_dir, ".log"))
    assert times == sorted(times)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_closed_index_passes_kafkas_sanity_check(partition_dir: Path, suffix: str) -> None:
    indexes = files_of(partition_dir, suffix)
    checked = dump(indexes, "--index-sanity-check")
    assert [line for line in checked.lines if line.endswith("passed sanity check.")] == [
        f"{index} passed sanity check." for index in indexes
    ]


def test_a_snapshot_holds_every_producer_and_its_last_sequence(partition_dir: Path) -> None:
    last = files_of(partition_dir, ".snapshot")[-1]
    dumped = dump([last])
    entries = re.findall(
        r"^producerId: (\d+) producerEpoch: 0 .*lastSequence: (\d+) ", dumped.stdout, re.MULTILINE
    )
    # Ours has an entry per remembered batch; of several, Kafka's reader keeps a producer's last.
    last_sequences = {int(producer_id): int(sequence) for producer_id, sequence in entries}
    assert list(last_sequences.values()) == [RECORDS_PER_CODEC - 1] * len(CODECS)


def test_the_tool_would_have_noticed_a_wrong_entry(partition_dir: Path, tmp_path: Path) -> None:
    damaged = tmp_path / partition_dir.name
    shutil.copytree(partition_dir, damaged)
    index = files_of(damaged, ".index")[0]
    entries = bytearray(index.read_bytes())
    entries[0:4], entries[8:12] = entries[8:12], entries[0:4]  # swap two offsets
    index.write_bytes(entries)
    with pytest.raises(AssertionError, match="Mismatches in"):
        dump([index])


def test_kafkas_decoder_reads_what_is_kept_of_groups_of_every_kind(tmp_path: Path) -> None:
    from millstream import Broker

    with Broker(data_dir=tmp_path, group_consumer_heartbeat_interval_ms="200ms") as broker:
        create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), TOPIC, partitions=2)
        with Members(broker.bootstrap, "readers", TOPIC) as members:
            old = members.start("range")
            members.settle((old, 2))
            new = members.start(topic=f"^{TOPIC}", group_instance_id="desk")
            members.settle((old, 1), (new, 1))
        join_share_group(broker.bootstrap, "workers", TOPIC)
    decoded = dump(files_of(tmp_path / "__consumer_offsets-0", ".log"), "--offsets-decoder")
    kept = re.findall(r'key: {"type":"(\d+)".* payload: (.*)', decoded.stdout)
    assert {number for number, _ in kept} == {"2", "3", "5", "6", "7", "8", "16"} | SHARE_RECORDS
    assert all(payload == "<DELETE>" or payload.startswith("{") for _, payload in kept)
    members_kept = [json.loads(payload)["data"] for number, payload in kept if number == "5"]
    assert [one["instanceId"] for one in members_kept] == [None, "desk"]
    assert "supportedProtocols" in members_kept[0]["classicMemberMetadata"]
    (shared,) = [json.loads(payload)["data"] for number, payload in kept if number == "15"]
    assert [topic["partitions"] for topic in shared["initializedTopics"]] == [[0, 1]]


def test_what_share_groups_have_done_is_read_as_kafka_s(tmp_path: Path) -> None:
    """A snapshot of where the group began, then an update for what was said of the records."""
    from millstream import Broker

    with Broker(data_dir=tmp_path, port=0) as broker:
        create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), TOPIC)
        configure_group(broker.bootstrap, "workers", share_auto_offset_reset="earliest")
        produce(broker.bootstrap, TOPIC, numbered(4))
        settle_by_turns(broker.bootstrap, "workers", TOPIC, count=4)
    segments = files_of(tmp_path / "__share_group_state-0", ".log")
    run = dump(segments, "--share-group-state-decoder", "--print-data-log")
    kept = [
        json.loads(line.split("payload: ")[1])["data"] for line in run.lines if "payload" in line
    ]
    assert (kept[0]["startOffset"], kept[0]["stateBatches"]) == (0, [])
    said = kept[1]
    assert said["startOffset"] == 1
    assert [
        (one["firstOffset"], one["lastOffset"], one["deliveryState"], one["deliveryCount"])
        for one in said["stateBatches"]
    ] == [(1, 1, 0, 1), (2, 2, 2, 1), (3, 3, 0, 1)]


def settle_by_turns(bootstrap: str, group: str, topic: str, *, count: int) -> None:
    """Accept every other record and release the rest, all in one commit."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3}
    member = ShareConsumer(config | {"share.acknowledgement.mode": "explicit"})
    member.subscribe([topic])
    held: list[Message] = []

    def has_all() -> bool:
        held.extend(member.poll(0.2))
        return len(held) == count

    eventually(has_all, what=f"{count} records")
    for message in held:
        is_odd = bool((message.offset() or 0) % 2)
        member.acknowledge(message, AcknowledgeType.RELEASE if is_odd else AcknowledgeType.ACCEPT)
    assert set(member.commit_sync(30).values()) == {None}
    member.unsubscribe()
    member.close()
