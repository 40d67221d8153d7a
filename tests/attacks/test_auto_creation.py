"""A client that names thousands of topics, or asks for thousands of partitions: it gets some of
them, or all, but the others are served meanwhile and the broker starts again."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.broker.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.broker_process import BrokerProcess, assert_no_traceback
from tests.support.raw_client import (
    CREATE_TOPICS_VERSION,
    METADATA_VERSION,
    RawClient,
    batch_of,
)

PER_REQUEST_MAX = 5
IN_ALL_MAX = 30
# The broker's own: metadata, offsets, transactions, share groups.
INTERNAL = 4
PARTITIONS = 150
TOO_MANY_PARTITIONS = 60
DESCRIPTORS_MAX = 96
WITHIN_S = 60.0


def name_new(client: RawClient, names: range) -> Counter[int]:
    """Name topics in one request; the answers' error codes."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=f"named-{number}") for number in names],
        allow_auto_topic_creation=True,
    )
    answer = client.call(request, MetadataResponse, METADATA_VERSION)
    return Counter(topic.error_code for topic in answer.topics)


def test_one_request_creates_few_topics_and_all_requests_not_many(tmp_path: Path) -> None:
    with (
        BrokerProcess(
            tmp_path / "data",
            f"--auto-create-topics-per-request-max={PER_REQUEST_MAX}",
            f"--auto-create-partitions-max={IN_ALL_MAX}",
        ) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        many = range(2_000)
        possible = IN_ALL_MAX - INTERNAL
        for already in range(0, possible, PER_REQUEST_MAX):
            created = min(already + PER_REQUEST_MAX, possible)
            is_full = created == possible
            others = ErrorCode.POLICY_VIOLATION if is_full else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert name_new(client, many) == {0: created, others: len(many) - created}
        client.create_topic("said")  # who says so is not bounded
        assert name_new(client, many) == {0: possible, ErrorCode.POLICY_VIOLATION: 2_000 - possible}
        lines = broker.diagnostics.splitlines()
        assert sum("auto_create_topics_per_request_max" in line for line in lines) == 1
        refused = (
            "new topics are not created for their first use (auto_create_partitions_max); create"
        )
        assert sum(refused in line for line in lines) == 1
        assert_no_traceback(broker.diagnostics)


@pytest.mark.parametrize("count", [PER_REQUEST_MAX, PER_REQUEST_MAX + 1])
def test_a_request_creates_as_many_as_the_limit_says_and_not_one_more(
    tmp_path: Path, count: int
) -> None:
    limit = f"--auto-create-topics-per-request-max={PER_REQUEST_MAX}"
    with BrokerProcess(tmp_path / "data", limit) as broker, RawClient(broker.bootstrap) as client:
        assert name_new(client, range(count))[0] == PER_REQUEST_MAX
        assert name_new(client, range(count)) == {0: count}  # as clients do


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("served") / "data",
        "--auto-create-topics-per-request-max=10000",
        "--auto-create-partitions-max=10000",
    ) as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("growing")
            client.create_topic("other")
        yield broker


def name_many(client: RawClient) -> None:
    assert name_new(client, range(PARTITIONS)) == {0: PARTITIONS}


def create_many(client: RawClient) -> None:
    topics = [
        CreatableTopic(name=f"created-{number}", num_partitions=1, replication_factor=1)
        for number in range(PARTITIONS)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    answer = client.call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION)
    assert Counter(topic.error_code for topic in answer.topics) == {0: PARTITIONS}


def create_wide(client: RawClient) -> None:
    client.create_topic("wide", partitions=PARTITIONS)


def grow(client: RawClient) -> None:
    topic = CreatePartitionsTopic(name="growing", count=PARTITIONS, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
    answer = client.call(request, CreatePartitionsResponse, 3)
    assert answer.results[0].error_code == 0


@pytest.mark.parametrize("work", [name_many, create_many, create_wide, grow])
def test_another_client_is_served_while_many_partitions_are_created(
    broker: BrokerProcess, work: Callable[[RawClient], None]
) -> None:
    errors: list[BaseException] = []

    def create() -> None:
        try:
            with RawClient(broker.bootstrap, within_s=WITHIN_S) as client:
                work(client)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=create)
    with RawClient(broker.bootstrap) as other:
        before = other.fetch("other", 0).high_watermark
        thread.start()
        served = 0
        while thread.is_alive():
            assert other.produce("other", batch_of(b"meanwhile")).error_code == 0
            served += 1
        thread.join()
        assert errors == []
        # With one turn of the loop after each partition it was one for every third of them: what
        # this client asks for takes several turns.
        assert served > PARTITIONS
        assert other.fetch("other", before).high_watermark == before + served


def test_a_broker_with_more_partitions_than_descriptors_starts_and_serves_each(
    tmp_path: Path,
) -> None:
    """Each partition has three files."""
    data = tmp_path / "data"
    with BrokerProcess(data, descriptors_max=DESCRIPTORS_MAX) as broker:
        with RawClient(broker.bootstrap, within_s=WITHIN_S) as client:
            client.create_topic("wide", partitions=TOO_MANY_PARTITIONS)
            for number in range(TOO_MANY_PARTITIONS):
                answer = client.produce("wide", batch_of(b"%d" % number), partition=number)
                assert answer.error_code == 0
        assert broker.stop() == 0
    with BrokerProcess(data, descriptors_max=DESCRIPTORS_MAX * 2 // 3) as broker:
        with RawClient(broker.bootstrap, within_s=WITHIN_S) as client:
            for number in range(TOO_MANY_PARTITIONS):
                answer = client.produce("wide", batch_of(b"again"), partition=number)
                assert answer.error_code == 0
                fetched = client.fetch("wide", 0, partition=number)
                assert (fetched.error_code, fetched.high_watermark) == (0, 2)
                assert b"%d" % number in fetched.records
        broker.process.kill()  # and after a stop that was not clean
    with BrokerProcess(data, descriptors_max=DESCRIPTORS_MAX * 2 // 3) as broker:
        with RawClient(broker.bootstrap, within_s=WITHIN_S) as client:
            for number in range(TOO_MANY_PARTITIONS):
                fetched = client.fetch("wide", 0, partition=number)
                assert (fetched.error_code, fetched.high_watermark) == (0, 2)
        assert broker.stop() == 0
        assert "too many open files" not in broker.diagnostics
        assert_no_traceback(broker.diagnostics)
