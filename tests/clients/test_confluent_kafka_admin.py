"""librdkafka's admin client: topics, configs, offsets, groups and the cluster."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.steps import (
    WITHIN_S,
    Sent,
    create_topic,
    eventually,
    numbered,
    open_consumer,
    produce,
    read,
    take,
    unique_name,
    values_of,
    wait_for_partitions,
)

SPEC: Any = OffsetSpec  # its factories carry no types
NO_TOPIC_ID = "A" * 22  # sixteen zero bytes in base64


def error_code(error: pytest.ExceptionInfo[KafkaException]) -> int:
    code = error.value.args[0].code()
    assert isinstance(code, int)
    return code


def topic_config(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(WITHIN_S)
    assert isinstance(entries, dict)
    return entries


def alter_topic_config(admin: AdminClient, topic: str, *changes: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=list(changes))
    admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)


def change(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def has_topic(admin: AdminClient, topic: str) -> bool:
    return topic in admin.list_topics(timeout=WITHIN_S).topics


@pytest.fixture
def member(bootstrap: str, admin: AdminClient, group: str, topic: str) -> Iterator[Consumer]:
    """A member of the test's group that has read and committed 3 records of the topic's 10."""
    create_topic(admin, topic, partitions=2)
    produce(bootstrap, topic, [Sent(value=b"%d" % n, partition=0) for n in range(10)])
    consumer = open_consumer(bootstrap, group, {"client.id": "reader"})
    consumer.subscribe([topic])
    consumer.commit(message=take(consumer, 3)[-1], asynchronous=False)
    yield consumer
    consumer.close()


# Topics


def test_a_topic_is_created_with_its_partitions_and_described(
    admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, partitions=3)
    collection = TopicCollection([topic])
    described = admin.describe_topics(collection)[topic].result(WITHIN_S)
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert not described.is_internal
    assert str(described.topic_id) != NO_TOPIC_ID
    for partition in described.partitions:
        assert [replica.id for replica in partition.isr] == [partition.leader.id]


def test_a_topic_that_exists_cannot_be_created_again(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WITHIN_S)
    assert error_code(refused) == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["with space", "a/b", "..", "x" * 250])
def test_a_bad_topic_name_is_refused(admin: AdminClient, name: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WITHIN_S)
    assert error_code(refused) == KafkaError.TOPIC_EXCEPTION


def test_a_topic_without_partitions_is_refused(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 0, 1)])[topic].result(WITHIN_S)
    assert error_code(refused) == KafkaError.INVALID_PARTITIONS
    assert not has_topic(admin, topic)


def test_a_topic_with_an_unknown_setting_is_refused(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, 1, 1, config={"no.such.setting": "1"})
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([new])[topic].result(WITHIN_S)
    assert error_code(refused) == KafkaError.INVALID_CONFIG
    assert not has_topic(admin, topic)


def test_a_trial_creation_creates_nothing(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(WITHIN_S)
    assert not has_topic(admin, topic)


def test_a_deleted_topic_is_gone_and_its_name_starts_empty(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(3))
    admin.delete_topics([topic])[topic].result(WITHIN_S)
    eventually(lambda: not has_topic(admin, topic), what=f"{topic} to be gone")

    create_topic(admin, topic)
    produce(bootstrap, topic, [Sent(value=b"new")])
    [message] = read(bootstrap, topic, 1)
    assert (message.offset(), message.value()) == (0, b"new")


def test_an_unknown_topic_cannot_be_deleted(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result(WITHIN_S)
    assert error_code(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_are_added_and_take_records(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, [Sent(value=b"old")])
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WITHIN_S)
    wait_for_partitions(admin, topic, 3)
    produce(bootstrap, topic, [Sent(value=b"new", partition=2)])
    assert set(values_of(read(bootstrap, topic, 2, partitions=3))) == {b"old", b"new"}


def test_partitions_cannot_be_taken_away(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic, partitions=3)
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WITHIN_S)
    assert error_code(refused) == KafkaError.INVALID_PARTITIONS


# Configs


def test_a_topics_settings_show_what_was_given_and_what_is_default(
    admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, config={"retention.ms": "3600000"})
    config = topic_config(admin, topic)
    assert config["retention.ms"].value == "3600000"
    assert ConfigSource(config["retention.ms"].source) == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert config["cleanup.policy"].value == "delete"
    assert config["cleanup.policy"].is_default
    assert config["segment.bytes"].value == str(1024**3)


def test_one_setting_is_changed_and_another_taken_back(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic, config={"retention.ms": "3600000", "segment.bytes": "2000000"})
    alter_topic_config(
        admin,
        topic,
        change("retention.ms", "7200000", AlterConfigOpType.SET),
        change("segment.bytes", None, AlterConfigOpType.DELETE),
    )

    def is_changed() -> bool:
        config = topic_config(admin, topic)
        return config["retention.ms"].value == "7200000" and config["segment.bytes"].is_default

    eventually(is_changed, what="both settings changed")


def test_a_list_setting_grows_and_shrinks_by_one_value(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)

    def policy() -> set[str]:
        return set(str(topic_config(admin, topic)["cleanup.policy"].value).split(","))

    alter_topic_config(admin, topic, change("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    eventually(lambda: policy() == {"delete", "compact"}, what="both policies")
    alter_topic_config(admin, topic, change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    eventually(lambda: policy() == {"compact"}, what="compact alone")
    subtract = change("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT)
    alter_topic_config(admin, topic, subtract)
    eventually(lambda: policy() == {""}, what="no policy: everything stays")
    alter_topic_config(admin, topic, change("cleanup.policy", "delete", AlterConfigOpType.APPEND))
    eventually(lambda: policy() == {"delete"}, what="delete again")


def test_a_bad_value_changes_nothing(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    with pytest.raises(KafkaException) as refused:
        alter_topic_config(admin, topic, change("retention.ms", "soon", AlterConfigOpType.SET))
    assert error_code(refused) == KafkaError.INVALID_CONFIG
    assert topic_config(admin, topic)["retention.ms"].is_default


@pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning")
def test_the_old_alter_replaces_every_setting(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic, config={"retention.ms": "3600000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "2000000"})
    admin.alter_configs([resource])[resource].result(WITHIN_S)

    def is_replaced() -> bool:
        config = topic_config(admin, topic)
        return config["segment.bytes"].value == "2000000" and config["retention.ms"].is_default

    eventually(is_replaced, what="retention.ms back to its default")


def test_the_settings_of_an_unknown_topic_are_refused(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        topic_config(admin, topic)
    assert error_code(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_brokers_settings_are_described(admin: AdminClient) -> None:
    [broker] = admin.list_topics(timeout=WITHIN_S).brokers.values()
    resource = ConfigResource(ResourceType.BROKER, str(broker.id))
    config = admin.describe_configs([resource])[resource].result(WITHIN_S)
    assert config["node.id"].value == str(broker.id)
    assert config["node.id"].is_read_only


# Offsets of a partition


def test_offsets_are_listed_by_end_time_and_largest_time(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    times_ms = [1_700_000_000_000, 1_700_000_002_000, 1_700_000_001_000]
    for time_ms in times_ms:
        produce(bootstrap, topic, [Sent(value=b"x", timestamp_ms=time_ms)])

    def listed(spec: OffsetSpec) -> Any:
        partition = TopicPartition(topic, 0)
        return admin.list_offsets({partition: spec})[partition].result(WITHIN_S)

    assert listed(SPEC.earliest()).offset == 0
    assert listed(SPEC.latest()).offset == 3
    assert listed(SPEC.for_timestamp(times_ms[0] + 1)).offset == 1
    assert listed(SPEC.for_timestamp(times_ms[0] + 1)).timestamp == times_ms[1]
    assert (listed(SPEC.max_timestamp()).offset, listed(SPEC.max_timestamp()).timestamp) == (
        1,
        times_ms[1],
    )


def test_records_are_deleted_up_to_the_end_and_not_beyond(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    beyond = TopicPartition(topic, 0, 6)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(WITHIN_S)
    assert error_code(refused) == KafkaError.OFFSET_OUT_OF_RANGE

    everything = TopicPartition(topic, 0, -1)
    deleted = admin.delete_records([everything])[everything].result(WITHIN_S)
    assert deleted.low_watermark == 5
    produce(bootstrap, topic, [Sent(value=b"after")])
    [message] = read(bootstrap, topic, 1)
    assert (message.offset(), message.value()) == (5, b"after")


# Groups


def group_offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    wanted = ConsumerGroupTopicPartitions(group)
    result = admin.list_consumer_group_offsets([wanted])[group].result(WITHIN_S)
    return {(found.topic, found.partition): found.offset for found in result.topic_partitions}


def test_a_running_group_is_listed_and_described(
    admin: AdminClient, group: str, topic: str, member: Consumer
) -> None:
    listed = admin.list_consumer_groups().result(WITHIN_S)
    assert listed.errors == []
    states = {found.group_id: found.state for found in listed.valid}
    assert states[group] == ConsumerGroupState.STABLE

    described = admin.describe_consumer_groups([group])[group].result(WITHIN_S)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    [only] = described.members
    assert (only.client_id, only.member_id) == ("reader", member.memberid())
    assert sorted(p.partition for p in only.assignment.topic_partitions) == [0, 1]
    assert {p.topic for p in only.assignment.topic_partitions} == {topic}


def test_groups_are_listed_by_state(admin: AdminClient, group: str, member: Consumer) -> None:
    def listed(state: ConsumerGroupState) -> set[str]:
        found = admin.list_consumer_groups(states={state}).result(WITHIN_S)
        return {listing.group_id for listing in found.valid}

    assert group in listed(ConsumerGroupState.STABLE)
    assert group not in listed(ConsumerGroupState.EMPTY)
    member.close()
    assert group in listed(ConsumerGroupState.EMPTY)


@pytest.mark.usefixtures("member")
def test_a_groups_offsets_are_listed(admin: AdminClient, group: str, topic: str) -> None:
    assert group_offsets(admin, group) == {(topic, 0): 3}


def test_the_offsets_of_an_empty_group_are_altered_and_then_used(
    bootstrap: str, admin: AdminClient, group: str, topic: str, member: Consumer
) -> None:
    member.close()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 8)])
    admin.alter_consumer_group_offsets([moved])[group].result(WITHIN_S)
    assert group_offsets(admin, group) == {(topic, 0): 8}

    successor = open_consumer(bootstrap, group)
    successor.subscribe([topic])
    assert values_of(take(successor, 2)) == [b"8", b"9"]
    successor.close()


@pytest.mark.usefixtures("member")
def test_the_offsets_of_a_running_group_cannot_be_altered(
    admin: AdminClient, group: str, topic: str
) -> None:
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 8)])
    result = admin.alter_consumer_group_offsets([moved])[group].result(WITHIN_S)
    [refused] = result.topic_partitions
    assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    assert group_offsets(admin, group) == {(topic, 0): 3}


def test_a_group_is_deleted_only_when_it_is_empty(
    admin: AdminClient, group: str, member: Consumer
) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(WITHIN_S)
    assert error_code(refused) == KafkaError.NON_EMPTY_GROUP

    member.close()
    admin.delete_consumer_groups([group])[group].result(WITHIN_S)
    listed = admin.list_consumer_groups().result(WITHIN_S)
    assert group not in {found.group_id for found in listed.valid}
    assert group_offsets(admin, group) == {}


def test_an_unknown_group_cannot_be_deleted(admin: AdminClient) -> None:
    unknown = unique_name("unknown")
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([unknown])[unknown].result(WITHIN_S)
    assert error_code(refused) == KafkaError.GROUP_ID_NOT_FOUND


# The cluster


def test_the_cluster_is_one_node_at_the_bootstrap_address(
    bootstrap: str, admin: AdminClient
) -> None:
    described = admin.describe_cluster().result(WITHIN_S)
    [node] = described.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert described.controller.id == node.id
    assert described.cluster_id == admin.cluster_id(timeout=WITHIN_S)
    assert described.cluster_id
