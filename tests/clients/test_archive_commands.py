"""`topics archive`, `archived` and `restore` end to end, on our broker and on Apache Kafka."""

import itertools
import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from millstream import archive
from millstream.commands.cluster import Cluster, open_cluster
from millstream.commands.topic_restorer import AnotherWriter, Restorer
from tests.clients.steps import Sent, create_topic, end_offset, eventually, produce, read
from tests.clients.test_cli_commands import Cli

TIME_MS = 1_750_000_000_000
MANY = 200_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
AWKWARD = [
    Sent(key=None, value=b"no key"),
    Sent(key=b"tombstone", value=None),
    Sent(key=None, value=None),
    Sent(key=b"", value=b""),
    Sent(key=b"\x00\xff\xfe", value=bytes(range(256))),
    Sent(key=b"large", value=b"\x00" * 300_000),
    Sent(key=b"h", value=b"v", headers=(("a", b"1"), ("a", b"2"), ("", b""), ("null", None))),
    Sent(key=b"many", value=b"v", headers=tuple((f"name-{n}", b"%d" % n) for n in range(200))),
    Sent(key="ключ".encode(), value="価値".encode(), headers=(("ü", b"\xff"),)),
]


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def restored(topic: str) -> str:
    return f"{topic}-restored"


def at_times(records: Sequence[Sent], *, partition: int = 0) -> list[Sent]:
    return [
        Sent(
            key=one.key,
            value=one.value,
            headers=one.headers,
            timestamp_ms=TIME_MS + number,
            partition=partition,
        )
        for number, one in enumerate(records)
    ]


def numbered(count: int, *, start: int = 0, partition: int = 0) -> list[Sent]:
    return [
        Sent(key=b"%d" % n, value=b"%d" % n, timestamp_ms=TIME_MS + n, partition=partition)
        for n in range(start, start + count)
    ]


Content = tuple[Any, ...]


def content_of(message: Message) -> Content:
    return (
        message.partition(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def contents(bootstrap: str, topic: str, count: int, *, partitions: int = 1) -> list[Content]:
    """Everything in the topic by partition; order within one is kept."""
    messages = read(bootstrap, topic, count, partitions=partitions)
    return sorted(map(content_of, messages), key=lambda content: content[0])


def headers_of(messages: list[Message]) -> list[Any]:
    return [message.headers() for message in messages]


# --- there and back --------------------------------------------------------------------------


def test_every_byte_comes_back(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic, partitions=len(CODECS), config={"max.message.bytes": "2000000"})
    for number, codec in enumerate(CODECS):
        produce(bootstrap, topic, at_times(AWKWARD, partition=number), {"compression.type": codec})
    count = len(AWKWARD) * len(CODECS)
    assert cli.json("topics", "archive", topic, "--to", place, "--all")["records"] == count
    cli.run("topics", "restore", "--from", place, "--to-topic", restored)
    before = contents(bootstrap, topic, count, partitions=len(CODECS))
    assert contents(bootstrap, restored, count, partitions=len(CODECS)) == before
    assert before[0][1:] == (TIME_MS, None, b"no key", ())


@pytest.mark.full
def test_two_hundred_thousand_records_come_back(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic, partitions=2)
    config = {"compression.type": "lz4", "queue.buffering.max.messages": MANY}
    halves = [numbered(MANY // 2, partition=number) for number in (0, 1)]
    produce(bootstrap, topic, [one for half in halves for one in half], config)
    run = cli.json("topics", "archive", topic, "--to", place, "--file-records", "60000", "--all")
    assert (run["records"], run["files"]) == (MANY, 4)
    archived = [
        value for batch in archive.read(place, topic) for value in batch.column("value").to_pylist()
    ]
    assert archived == [one.value for half in halves for one in half]
    done = cli.json("topics", "restore", "--from", place, "--to-topic", restored)
    assert done["restored"] == MANY
    assert [part["same_offsets"] for part in done["partitions"]] == [True, True]
    before = contents(bootstrap, topic, MANY, partitions=2)
    assert contents(bootstrap, restored, MANY, partitions=2) == before


def test_a_run_goes_on_where_the_last_one_ended(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, place: str
) -> None:
    create_topic(admin, topic)
    for start in (0, 10, 20):
        produce(bootstrap, topic, numbered(10, start=start))
        cli.run("topics", "archive", topic, "--to", place, "--all")
    assert cli.json("topics", "archive", topic, "--to", place, "--all")["records"] == 0
    found = [row["offset"] for batch in archive.read(place, topic) for row in batch.to_pylist()]
    assert found == list(range(30))


def test_a_young_tail_waits_for_a_full_file(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, place: str
) -> None:
    create_topic(admin, topic)
    now_ms = time.time_ns() // 1_000_000
    young = [Sent(value=b"%d" % n, timestamp_ms=now_ms) for n in range(10)]
    produce(bootstrap, topic, young)
    args = ("topics", "archive", topic, "--to", place, "--file-records", "4")
    assert "2 records wait for a full file; --all writes them now." in cli.said(*args)
    (partition,) = cli.json("topics", "archived", "--at", place)[0]["partitions"]
    assert (partition["end"], partition["files"]) == (8, 2)
    assert cli.json(*args)["waiting"] == 2
    assert cli.json(*args, "--all")["records"] == 2


def test_an_old_tail_does_not_wait(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, place: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(3))
    assert cli.json("topics", "archive", topic, "--to", place)["records"] == 3


def test_only_committed_records_are_archived_and_what_was_aborted_is_no_gap(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic)
    config = {"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(10)
    for number, is_committed in enumerate((True, False, True, False)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush()
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    run = cli.json("topics", "archive", topic, "--to", place, "--all")
    assert (run["records"], run["gaps"]) == (2, [])
    (partition,) = run["partitions"]
    assert partition["end"] == end_offset(bootstrap, topic) == 8
    cli.run("topics", "trim", topic, "--before", "latest", "--yes")
    assert cli.json("topics", "archive", topic, "--to", place, "--all")["gaps"] == []
    cli.run("topics", "restore", "--from", place, "--to-topic", restored)
    found = read(bootstrap, restored, 2)
    assert [message.value() for message in found] == [b"0", b"2"]
    assert headers_of(found) == [[("millstream.offset", b"0")], [("millstream.offset", b"4")]]


def test_a_topic_that_was_emptied_after_it_was_archived_has_no_gap(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, place: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    cli.run("topics", "trim", topic, "--before", "latest", "--yes")
    assert cli.json("topics", "archive", topic, "--to", place)["records"] == 0


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)]
)
def test_an_interrupted_run_keeps_what_it_has(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, place: str, ending: signal.Signals
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(1_500))
    args = ("topics", "archive", topic, "--to", place, "--all", "--file-records", "10")
    with cli.started(*args) as process:
        eventually(lambda: len(list(Path(place).rglob("*.parquet"))) > 1, what="some files")
        process.send_signal(ending)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Stopped. What was archived so far is kept" in said
    assert 0 < cli.json("topics", "archived", "--at", place)[0]["records"] < 1_500
    cli.run(*args)
    assert cli.json("topics", "archived", "--at", place, "--verify")[0]["records"] == 1_500


# --- what stands in the way ------------------------------------------------------------------


def test_a_gap_that_retention_made_is_reported_and_needs_to_be_allowed(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    produce(bootstrap, topic, numbered(5, start=5))
    cli.run("topics", "trim", topic, "--before", "7", "--yes")
    args = ("topics", "archive", topic, "--to", place, "--all")
    assert f"2 offsets were deleted before they were archived: {topic}[0] [5, 7)" in cli.fail(*args)
    assert f"GAP: {topic}[0] [5, 7): 2 offsets" in cli.said(*args, "--allow-gaps")
    assert cli.said(*args) == ""
    (shown,) = cli.json("topics", "archived", "--at", place)
    assert shown["partitions"][0]["gaps"] == [{"start": 5, "end": 7}]
    assert "[5, 7)" in cli.run("topics", "archived", "--at", place)
    cli.run("topics", "restore", "--from", place, "--to-topic", restored)
    offsets = [headers[0][1] for headers in headers_of(read(bootstrap, restored, 8))]
    assert offsets == [b"0", b"1", b"2", b"3", b"4", b"7", b"8", b"9"]


def test_a_topic_that_was_created_again_is_refused(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, place: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(2))
    args = ("topics", "archive", topic, "--to", place, "--all", "--allow-gaps")
    cli.run(*args)
    cli.run("topics", "delete", topic, "--yes")
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    assert f"Topic {topic} was deleted and created again" in cli.fail(*args)
    assert cli.json("topics", "archived", "--at", place)[0]["records"] == 2


def test_records_that_go_while_they_are_read_are_an_error(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str
) -> None:
    from millstream.base.offsets import OffsetRange
    from millstream.commands.connecting import Partition
    from millstream.commands.topic_reader import RetentionCameFirst, TopicReader

    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    cli.run("topics", "trim", topic, "--before", "3", "--yes")
    reader = TopicReader(open_cluster(bootstrap))
    try:
        with pytest.raises(RetentionCameFirst, match="offset 1 was deleted"):
            list(reader.read(Partition(topic, 0), OffsetRange(start=1, end=5)))
    finally:
        reader.close()


def test_damage_is_found_and_named(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    cli.run("topics", "archived", "--at", place, "--verify")
    (file,) = Path(place).rglob("*.parquet")
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    for args in (("archived", "--verify", "--at", place), ("restore", "--from", place)):
        assert f"{file}: has other bytes" in cli.fail("topics", *args, exit_code=74)
    file.unlink()
    said = cli.fail("topics", "restore", "--from", place, "--to-topic", restored, exit_code=74)
    assert f"{file}: is missing" in said


@pytest.mark.parametrize(
    ("args", "exit_code", "said"),
    [
        (("archive", "{topic}", "--to", "s4://a/b"), 1, "no place for an archive"),
        (("archive", "{topic}", "--to", "a", "--file-bytes", "much"), 2, "--file-bytes: cannot"),
        (("archive", "{topic}x", "--to", "a"), 1, "does not exist"),
        (("archived", "{topic}", "--at", "{place}"), 1, "There is no archive at all"),
        (("restore", "--from", "{place}"), 2, "holds no archive"),
        (("restore", "--from", "{place}", "--since", "soon"), 2, "--since: cannot read 'soon'"),
        (("restore", "--from", "{place}", "--to-topic", "__consumer_offsets", "{topic}"), 1, ""),
    ],
)
def test_what_cannot_be_done_is_told(
    cli: Cli,
    admin: AdminClient,
    topic: str,
    place: str,
    args: tuple[str, ...],
    exit_code: int,
    said: str,
) -> None:
    create_topic(admin, topic)
    filled = [arg.format(topic=topic, place=place) for arg in args]
    assert said in cli.fail("topics", *filled, exit_code=exit_code)


# --- restoring a part, or into what is there ---------------------------------------------------


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--since", "6"), range(6, 10)),
        (("--until", "4"), range(4)),
        (("--since", "2025-06-15T15:06:40.002Z", "--until", "8"), range(2, 8)),
        (("--until", "2025-06-15T15:06:40.001Z"), range(1)),
    ],
)
def test_a_part_is_restored(
    cli: Cli,
    bootstrap: str,
    admin: AdminClient,
    topic: str,
    restored: str,
    place: str,
    args: tuple[str, ...],
    expected: range,
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    cli.run("topics", "archive", topic, "--to", place, "--file-records", "3", "--all")
    cli.run("topics", "restore", "--from", place, "--to-topic", restored, *args)
    found = read(bootstrap, restored, len(expected))
    assert [message.value() for message in found] == [b"%d" % n for n in expected]
    assert end_offset(bootstrap, restored) == len(expected)


def test_a_restored_topic_has_its_configs_and_keeps_old_records(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    config = {"retention.ms": "3600000", "max.message.bytes": "5000"}
    create_topic(admin, topic, config=config | {"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, topic, numbered(3))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    args = ("topics", "restore", "--from", place, "--to-topic", restored, "--config")
    said = cli.said(*args, "segment.ms=1h")
    assert f"`millstream topics alter {restored} --config retention.ms=3600000" in said
    (described,) = cli.json("topics", "describe", restored)
    expected = {
        "retention.ms": "-1",
        "max.message.bytes": "5000",
        "message.timestamp.type": "CreateTime",
        "segment.ms": "3600000",
    }
    assert expected.items() <= described["configs"].items()
    before = contents(bootstrap, topic, 3)
    assert contents(bootstrap, restored, 3) == before


def test_records_that_came_after_the_restore_are_not_mixed_with(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    create_topic(admin, restored)
    produce(bootstrap, restored, numbered(1, start=7))
    args = ("topics", "restore", "--from", place, "--to-topic", restored)
    assert "holds records that this restore did not write" in cli.fail(*args)
    cli.run("topics", "trim", restored, "--before", "1", "--yes")
    assert "offset 0 was deleted, and cannot be compared" in cli.fail(*args)
    cli.run("topics", "restore", "--from", place, "--to-topic", f"{restored}-2")
    produce(bootstrap, f"{restored}-2", numbered(1))
    said = cli.fail("topics", "restore", "--from", place, "--to-topic", f"{restored}-2")
    assert "it has 6, the archive fewer" in said
    assert (end_offset(bootstrap, restored), end_offset(bootstrap, f"{restored}-2")) == (1, 6)


def test_nothing_is_restored_to_a_topic_that_holds_something_else_anywhere(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic, partitions=2)
    for number in (0, 1):
        produce(bootstrap, topic, numbered(3, partition=number))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    create_topic(admin, restored, partitions=3)
    other = numbered(1, start=7, partition=1)
    produce(bootstrap, restored, other + numbered(1, start=1, partition=1))
    args = ("topics", "restore", "--from", place, "--to-topic", restored)
    assert f"{restored}[1] holds records" in cli.fail(*args)
    produce(bootstrap, restored, numbered(1, partition=2))
    assert "the archive has no such partition" in cli.fail(*args)
    ends = [end_offset(bootstrap, restored, number) for number in range(3)]
    assert ends == [0, 2, 1]


def test_a_topic_with_too_few_partitions_is_not_restored_to(
    cli: Cli, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic, partitions=3)
    cli.run("topics", "archive", topic, "--to", place)
    create_topic(admin, restored, partitions=2)
    said = cli.fail("topics", "restore", "--from", place, "--to-topic", restored)
    assert f"`millstream topics add-partitions {restored} --to 3`" in said


def test_a_topic_that_would_delete_what_is_restored_is_told(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(2))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    create_topic(admin, restored, config={"retention.ms": "3600000"})
    said = cli.said("topics", "restore", "--from", place, "--to-topic", restored)
    assert f"{restored} was there before, with retention 1h: older records go soon" in said


def test_a_second_restore_changes_nothing(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    create_topic(admin, topic, partitions=2)
    produce(bootstrap, topic, numbered(5, partition=1))
    cli.run("topics", "archive", topic, "--to", place, "--all")
    args = ("topics", "restore", "--from", place, "--to-topic", restored)
    assert cli.run(*args) == f"Restored 5 records to {restored}\n"
    assert cli.run(*args) == f"Restored 0 records to {restored} (5 were there already)\n"


def test_another_writer_is_noticed(bootstrap: str, admin: AdminClient, topic: str) -> None:
    from millstream.archive.restored import RestoredRecord
    from millstream.commands.produce import Compression

    create_topic(admin, topic)
    cluster: Cluster = open_cluster(bootstrap)
    restorer = Restorer(cluster, topic, Compression.NONE)
    produce(bootstrap, topic, numbered(1))
    record = RestoredRecord(TIME_MS, b"k", b"v", ())
    try:
        with pytest.raises(AnotherWriter, match="got offset 1, not 0"):
            restorer.restore(0, itertools.repeat(record), done=0, advance=lambda _count: None)
    finally:
        restorer.close()
    assert end_offset(bootstrap, topic) == 2


def test_a_time_that_no_client_can_send_is_told(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    """librdkafka takes the time 0 for "now": Java's tools and others can write it."""
    from millstream.archive.archiver import archive_range
    from millstream.archive.parquet import Columns
    from millstream.archive.plan import FileLimits, Source
    from millstream.archive.stores import open_store
    from millstream.archive.topic_archive import TopicArchive
    from millstream.base.offsets import OffsetRange

    within = OffsetRange(start=0, end=1)
    topic_archive = TopicArchive(open_store(place), topic)
    source = Source(topic=topic, topic_id="id", available={0: within})
    topic_archive.begin(source, allow_gaps=False)
    columns = Columns(
        offsets=[0],
        times_ms=[0],
        timestamp_types=["CreateTime"],
        keys=[None],
        values=[b"v"],
        headers=[()],
    )
    archive_range(
        topic_archive, 0, within, [columns], limits=FileLimits(), wants_tail=lambda _first: True
    )
    said = cli.said("topics", "restore", "--from", place, "--to-topic", restored)
    assert "1 record without a time, or of 1970-01-01T00:00:00.000Z" in said
    (message,) = read(bootstrap, restored, 1)
    assert message.timestamp()[1] == 1
    again = cli.json("topics", "restore", "--from", place, "--to-topic", restored)
    assert (again["restored"], again["were_there"]) == (0, 1)


# --- what is there ---------------------------------------------------------------------------


def test_an_archive_of_several_topics_is_shown_and_asked_for_by_name(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, restored: str, place: str
) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        create_topic(admin, name)
        produce(bootstrap, name, numbered(2))
        cli.run("topics", "archive", name, "--to", place, "--all")
    assert [one["topic"] for one in cli.json("topics", "archived", "--at", place)] == [topic, other]
    (shown,) = cli.json("topics", "archived", other, "--at", place)
    (partition,) = shown["partitions"]
    assert (partition["start"], partition["end"], partition["records"]) == (0, 2, 2)
    assert partition["oldest"] == "2025-06-15T15:06:40.000Z"
    assert "say which, `restore TOPIC`" in cli.fail(
        "topics", "restore", "--from", place, exit_code=2
    )
    cli.run("topics", "restore", other, "--from", f"file://{place}", "--to-topic", restored)
    eventually(lambda: end_offset(bootstrap, restored) == 2, what="two records")


def test_the_face_for_programs_reads_what_is_asked_for(
    cli: Cli, bootstrap: str, admin: AdminClient, topic: str, place: str
) -> None:
    create_topic(admin, topic, partitions=2)
    for number in (0, 1):
        produce(bootstrap, topic, numbered(10, partition=number))
    cli.run("topics", "archive", topic, "--to", place, "--file-records", "4", "--all")

    def offsets(**asked: int) -> list[tuple[int, int]]:
        found = [batch.to_pylist() for batch in archive.read(place, topic, **asked)]
        return [(row["partition"], row["offset"]) for rows in found for row in rows]

    assert offsets(start=8) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    assert offsets(partition=1, start=3, end=5) == [(1, 3), (1, 4)]
    assert offsets(partition=2) == []
    (manifest,) = Path(place).rglob("_manifest.json")
    assert json.loads(manifest.read_text())["topic"] == topic
