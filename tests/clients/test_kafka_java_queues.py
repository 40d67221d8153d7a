"""Kafka's Java share consumer: what becomes of single records in a share group."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.share_group_steps import configure_group, positions_of
from tests.clients.steps import create_topic, eventually, numbered, produce
from tests.support.java_tools import require_compiler, run_class

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("kafka_tools"),
]

SHARE_WORKER = Path(__file__).parents[1] / "support" / "ShareWorker.java"
# Renewed three times and more: on a busy machine a JVM may stand still for some seconds.
LOCK_MS = 10_000


def test_a_java_consumer_accepts_releases_rejects_and_renews(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    require_compiler()
    create_topic(admin, topic, partitions=1)
    configure_group(
        bootstrap,
        group,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms=str(LOCK_MS),
    )
    produce(bootstrap, topic, numbered(4))
    hold_ms = str(3 * LOCK_MS // 2)
    done = run_class(str(SHARE_WORKER), bootstrap, group, topic, hold_ms).checked()
    said = [line for line in done.lines if line[:1].isdigit()]  # the client has words of its own
    for line in ("0 1 accept", "1 1 release", "1 2 accept", "2 1 reject", "3 1 accept"):
        assert said.count(line) == 1, done.stdout
    assert said.count("3 1 renew") >= 3, done.stdout
    assert {line.split()[-1] for line in said} == {"accept", "release", "reject", "renew"}
    eventually(
        lambda: positions_of(bootstrap, group)[topic, 0].lag == 0, what="all records are done"
    )
