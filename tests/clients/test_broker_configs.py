"""What Kafka's tools set and ask of a broker: compression of topics, configs, leaders, features.

Each test runs on both brokers, so that ours accepts and refuses what Kafka does.
"""

import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from millstream.broker.dynamic_config import READ_ONLY
from millstream.broker.topic_config import TOPIC_CONFIGS
from millstream.log.record_batch import Codec, read_header
from tests.clients.share_group_steps import configure_group
from tests.clients.steps import create_topic, eventually, numbered, produce, read, values_of
from tests.conftest import KEEPS_OLD_RECORDS
from tests.support.java_tools import TOOLS, ToolRun, run_class, run_tool
from tests.support.raw_client import RawClient

WITHIN_S = 30.0
UNKNOWN = "my.plugin.password"  # what some tests set
THIS_BROKER = ConfigResource(ResourceType.BROKER, "1")


def set_configs(admin: AdminClient, kind: ResourceType, name: str, **configs: str) -> None:
    resource = ConfigResource(
        kind,
        name,
        incremental_configs=[
            ConfigEntry(
                config.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET
            )
            for config, value in configs.items()
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)


# --- compression ------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["none", "zstd"])
@pytest.mark.parametrize("kept", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_keeps_its_batches_in_its_own_codec(
    bootstrap: str, admin: AdminClient, topic: str, kept: str, sent: str
) -> None:
    create_topic(admin, topic, config={"compression.type": kept})
    records = numbered(200)
    produce(bootstrap, topic, records, {"compression.type": sent, "linger.ms": 100})
    with RawClient(bootstrap) as client:
        batch = client.fetch(topic, 0).records
    assert Codec(read_header(batch).codec).name.lower() == kept.replace("uncompressed", "none")
    assert values_of(read(bootstrap, topic, len(records))) == [one.value for one in records]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("follower.replication.throttled.replicas", "x"),
        ("remote.storage.enable", "true"),
    ],
)
def test_a_topic_config_with_a_bad_value_is_refused(
    admin: AdminClient, topic: str, name: str, value: str
) -> None:
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        create_topic(admin, topic, config={name: value})


def test_every_topic_config_of_the_broker_is_known_here(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(WITHIN_S).keys() == set(
        TOPIC_CONFIGS
    )


# --- configs of the broker --------------------------------------------------------------------


def test_the_broker_accepts_what_it_does_not_know(admin: AdminClient) -> None:
    set_configs(admin, ResourceType.BROKER, "1", my_plugin_password="secret", num_io_threads="9")

    def is_shown() -> bool:  # Kafka's brokers take up what their controller has stored
        found = admin.describe_configs([THIS_BROKER])[THIS_BROKER].result(WITHIN_S)
        unknown = found.get(UNKNOWN)
        return found["num.io.threads"].value == "9" and unknown is not None and hides(unknown)

    def hides(entry: ConfigEntry) -> bool:
        return entry.value is None and entry.is_sensitive

    eventually(is_shown, what="both configs")


@pytest.mark.parametrize(
    ("name", "value"), [("num_partitions", "3"), ("log_dirs", "/x"), ("message_max_bytes", "x")]
)
def test_the_broker_refuses_what_cannot_change(admin: AdminClient, name: str, value: str) -> None:
    with pytest.raises(KafkaException, match="INVALID_REQUEST"):
        set_configs(admin, ResourceType.BROKER, "1", **{name: value})


@pytest.mark.full
def test_what_kafka_does_not_change_while_it_runs_is_in_our_table(apache_kafka: str) -> None:
    kafka = AdminClient({"bootstrap.servers": apache_kafka, "log_level": 3})
    found = kafka.describe_configs([THIS_BROKER])[THIS_BROKER].result(WITHIN_S)
    read_only = {name for name, entry in found.items() if entry.is_read_only}
    assert read_only - {UNKNOWN, *KEEPS_OLD_RECORDS} == READ_ONLY - KEEPS_OLD_RECORDS.keys()


# --- Kafka's tools ----------------------------------------------------------------------------


def run(tool: str, bootstrap: str, *arguments: str) -> ToolRun:
    return run_tool(tool, *arguments, bootstrap=bootstrap)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("kafka_tools")
class TestTools:
    def test_leader_election_finds_the_leader_elected(
        self, bootstrap: str, admin: AdminClient, topic: str
    ) -> None:
        create_topic(admin, topic)
        place = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
        elected = run("LeaderElectionCommand", bootstrap, *place).checked()
        assert f"Valid replica already elected for partitions {topic}-0" in elected.stdout
        unknown = ("--election-type", "preferred", "--topic", "nothing", "--partition", "0")
        refused = run("LeaderElectionCommand", bootstrap, *unknown)
        assert refused.exit_code == 1
        assert "UnknownTopicOrPartition" in refused.stderr + refused.stdout

    def test_a_reassignment_to_where_it_is_succeeds(
        self, bootstrap: str, admin: AdminClient, topic: str, tmp_path: Path
    ) -> None:
        create_topic(admin, topic)
        plan = tmp_path / "plan.json"

        def execute(*replicas: int) -> ToolRun:
            partition = {"topic": topic, "partition": 0, "replicas": replicas}
            plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
            arguments = ("--reassignment-json-file", str(plan), "--execute")
            return run("reassign.ReassignPartitionsCommand", bootstrap, *arguments)

        assert "Successfully started partition reassignment" in execute(1).checked().stdout
        refused = execute(7)
        assert refused.exit_code == 1

    def test_the_quorum_is_described(self, bootstrap: str) -> None:
        status = run("MetadataQuorumCommand", bootstrap, "describe", "--status").checked()
        assert "LeaderId:               1" in status.stdout
        replicas = run("MetadataQuorumCommand", bootstrap, "describe", "--replication").checked()
        assert "Leader" in replicas.stdout

    def test_features_are_described_and_stay(self, bootstrap: str) -> None:
        described = run("FeatureCommand", bootstrap, "describe").checked()
        assert "group.version" in described.stdout
        same = ("upgrade", "--feature", "share.version=1")
        assert "was upgraded to 1" in run("FeatureCommand", bootstrap, *same).checked().stdout
        for update in ("share.version=9", "nothing=1"):
            refused = run("FeatureCommand", bootstrap, "upgrade", "--feature", update)
            assert (refused.exit_code, "Could not upgrade" in refused.stdout) == (1, True)

    def test_a_broker_that_is_not_there_cannot_be_unregistered(self, bootstrap: str) -> None:
        asked = ("unregister", "--bootstrap-server", bootstrap, "--id", "7")
        refused = run_class(f"{TOOLS}.ClusterTool", *asked)
        assert refused.exit_code == 1
        assert "registered" in refused.stderr + refused.stdout


# --- groups -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_a_group_may_say_when_its_assignments_are_made_but_not_where(
    bootstrap: str, group: str, kind: str
) -> None:
    configure_group(bootstrap, group, **{f"{kind}_assignment_interval_ms": "5000"})
    with pytest.raises(AssertionError, match="offload"):
        configure_group(bootstrap, group, **{f"{kind}_assignor_offload_enable": "false"})
