"""What all tests share: one Apache Kafka for each worker of a run, and the order of the files.

Kafka takes six seconds of CPU to start, and forty files of the full run ask for it. Each test names
topics and groups of its own, so that none sees what another has left.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.apache_kafka import QUICK_START_OPTIONS, ApacheKafka

# What every change must pass is no lottery: Hypothesis makes the same examples each time. To look
# for new ones: `make explore`.
# A busy machine is slow now and then: no example has to be quick.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.load_profile("gate")

TESTS = Path(__file__).parent
# Files that take minutes. A worker takes a whole file: one of these that comes last is waited for
# by all. Those that wait stand beside those that compute.
LONG_FILES = (
    "e2e/test_demo.py",
    "faults/test_consistency.py",
    "faults/test_job_kills.py",
    "faults/test_job_kills_in_stores.py",
    "spark/test_changelog_views.py",
    "faults/test_capture_kills.py",
    "spark/test_capture_guide.py",
    "spark/test_examples.py",
    "clients/test_compaction.py",
    "faults/test_view_kills.py",
    "faults/test_log_power_cut.py",
    "spark/test_cluster.py",
    "clients/test_transactions_kill_nine.py",
    "spark/test_jobs_kill_nine.py",
    "faults/test_log_damage.py",
    "contracts/test_mariadb_capture.py",
    "contracts/test_postgres_capture.py",
    "faults/test_trigger_capture_kills.py",
    "spark/test_view_stores.py",
    "faults/test_archive_two_writers.py",
    "spark/test_run_command.py",
    "faults/test_broker_kill_nine.py",
    "spark/test_join_steps.py",
)
# Some tests write old timestamps: retention must not come while they look.
KEEPS_OLD_RECORDS = {
    "log.retention.check.interval.ms": "3600000",
    "log.initial.task.delay.ms": "3600000",  # the first look: 30 s by default
}
# Of consumer groups (KIP-848) the broker sets the pace: a crash is to be noticed soon.
CONSUMER_SESSION_MS = 6_000
CONSUMER_HEARTBEAT_MS = 200
# And of share groups.
SHARE_SESSION_MS = 6_000
SHARE_HEARTBEAT_MS = 200
QUICK_GROUPS = {
    "group.consumer.session.timeout.ms": f"{CONSUMER_SESSION_MS}",
    "group.consumer.min.session.timeout.ms": f"{CONSUMER_SESSION_MS}",
    "group.consumer.heartbeat.interval.ms": f"{CONSUMER_HEARTBEAT_MS}",
    "group.consumer.min.heartbeat.interval.ms": f"{CONSUMER_HEARTBEAT_MS}",
    "group.share.session.timeout.ms": f"{SHARE_SESSION_MS}",
    "group.share.min.session.timeout.ms": f"{SHARE_SESSION_MS}",
    "group.share.heartbeat.interval.ms": f"{SHARE_HEARTBEAT_MS}",
    "group.share.min.heartbeat.interval.ms": f"{SHARE_HEARTBEAT_MS}",
    "group.streams.min.session.timeout.ms": f"{CONSUMER_SESSION_MS}",
    "group.streams.min.heartbeat.interval.ms": f"{CONSUMER_HEARTBEAT_MS}",
    "group.streams.initial.rebalance.delay.ms": "0",
}
# The shortest lock of a share group that Millstream allows; Kafka's own is 15 s unless told so.
QUICK_LOCKS = {"group.share.min.record.lock.duration.ms": "1000"}
# What a producer that was killed left open is aborted soon after its timeout.
QUICK_ABORTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@pytest.fixture(scope="session", autouse=True)
def captures_approved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What tests approve is of no concern to the user whose machine this is."""
    file = tmp_path_factory.mktemp("approved") / "captures.json"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MILLSTREAM_CAPTURES_APPROVED", str(file))
        yield file


@pytest.hookimpl(trylast=True)  # after pytest's own order, by the parameters of fixtures
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(LONG_FILES)))


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[str]:
    """The address of an Apache Kafka that keeps old records and is quick to miss a member."""
    properties = KEEPS_OLD_RECORDS | QUICK_GROUPS | QUICK_LOCKS | QUICK_ABORTS
    with ApacheKafka(
        extra_properties=properties, heap="512m", jvm_options=QUICK_START_OPTIONS
    ) as kafka:
        yield kafka.bootstrap
