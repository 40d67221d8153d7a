"""The programs of examples/ that have jobs print what their docstrings say, over one Spark.

Each has a broker and a data directory of its own, as when it is started by hand; only the session
is that of all tests. Those that show the most ways run with every change, the others in the full
run.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.example_runs import printed, promised
from tests.support.postgres_server import postgres_server
from tests.support.redis_server import FORGETFUL, RedisServer

QUICK = ["tumbling_windows", "totals", "own_sink"]
FULL = [
    "change_feed",
    "device_clocks",
    "distinct_and_top",
    "value_encodings",
    "hopping_windows",
    "job_to_topic",
    "join_as_of",
    "join_enrich",
    "join_tables",
    "join_within",
    "late_events",
    "one_page",
    "session_windows",
    "sliding_windows",
    "store_delta",
    "store_parquet",
    "store_search",
    "store_sqlite",
    "store_topic",
    "view_of_view",
]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_BROKERS", raising=False)


@pytest.mark.parametrize(
    "example", [*QUICK, *(pytest.param(one, marks=pytest.mark.full) for one in FULL)]
)
def test_an_example_prints_what_it_says(example: str) -> None:
    assert printed(example) == promised(example)


@pytest.mark.full
def test_the_view_in_postgresql_prints_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server() as server:
        monkeypatch.setenv("SHOP_DATABASE", server.url)
        assert printed("store_postgres") == promised("store_postgres")


@pytest.mark.full
def test_the_view_in_redis_prints_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer(FORGETFUL) as server:
        monkeypatch.setenv("SHOP_REDIS", server.url)
        assert printed("store_redis") == promised("store_redis")
