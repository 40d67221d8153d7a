"""The writer of a view is killed at every step, in every store.

A reader sees whole batches only, none is lost that was noted as done, none counts twice, and what
is left in the end are the rows of a quiet run.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import Broker
from tests.faults.killed_store import rows_after
from tests.support.postgres_server import PostgresServer, postgres_server
from tests.support.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
KILLED = -9
EMBEDDED = {
    "sqlite": "stores.Sqlite()",
    "delta": 'stores.Delta("{directory}/lake")',
    "parquet": 'stores.Parquet("{directory}/files")',
    "search": 'stores.SearchIndex(text=["item"])',
    "topic": 'stores.Topic("prices")',
}

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def require_whole_batches(choice: str, directory: Path, broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.killed_store", choice, directory, broker.bootstrap],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    *kills, end = found
    for one in kills:
        where = f"{choice}, killed at step {one['step']} after batch {one['before']}"
        assert one["status"] in (KILLED, 0), where
        assert one["before"] <= one["batches"] <= one["before"] + 2, where
        assert one["rows"] == rows_after(one["batches"]), where
    assert sum(one["status"] == KILLED for one in kills) > len(kills) / 2
    assert end["status"] == 0
    assert end["rows"] == rows_after(end["batches"])


@pytest.mark.parametrize("choice", EMBEDDED.values(), ids=EMBEDDED)
def test_an_embedded_store(choice: str, tmp_path: Path, broker: Broker) -> None:
    require_whole_batches(choice.format(directory=tmp_path), tmp_path, broker)


def test_postgresql(tmp_path: Path, broker: Broker, postgres: PostgresServer) -> None:
    require_whole_batches(f"stores.Postgres({postgres.url!r})", tmp_path, broker)


def test_redis(tmp_path: Path, broker: Broker, redis: RedisServer) -> None:
    require_whole_batches(f"stores.Redis({redis.url!r})", tmp_path, broker)
