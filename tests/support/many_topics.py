"""A broker with many topics of one partition, and one of many partitions."""

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from millstream.base.librdkafka import admin_api

CHUNK = 500
MEMORY = Path("/dev/shm")
# A partition has a log and two indexes open.
FILES_OF_A_PARTITION = 3
FILES_SPARE = 1_000
WITHIN_S = 120.0


def partitions_possible(wanted: int) -> int:
    """How many a broker can have open here, up to so many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(wanted, (soft - FILES_SPARE) // FILES_OF_A_PARTITION)


@contextmanager
def memory_directory() -> Iterator[Path]:
    """Where a sync costs nothing: each of the topics has several."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as found:
        yield Path(found) / "data"


def make_many_topics(bootstrap: str, *, topics: int, partitions: int) -> None:
    """`topic-00000` and on, and `wide`."""
    api = admin_api()
    admin = api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    new = [api.NewTopic(f"topic-{number:05}", 1, 1) for number in range(topics)]
    new.append(api.NewTopic("wide", partitions, 1))
    for start in range(0, len(new), CHUNK):
        asked = admin.create_topics(
            new[start : start + CHUNK], operation_timeout=WITHIN_S, request_timeout=WITHIN_S
        )
        for name, made in asked.items():
            try:
                made.result(WITHIN_S)
            except KafkaException as error:
                raise AssertionError(f"{name}: {error}") from error
