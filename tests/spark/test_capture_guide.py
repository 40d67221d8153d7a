"""docs/guides/capture.md: its application follows a real PostgreSQL, its commands do as it says."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream import App, Broker
from tests.support.postgres_server import LOGICAL, PASSWORD, PostgresServer, postgres_server

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "capture.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
URL = "postgresql://mill:${SHOP_PASSWORD}@localhost/shop"
WITHIN_S = 300
TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, total numeric(10,2))",
    "INSERT INTO customers VALUES (1, 'ada'), (2, 'bob')",
    "INSERT INTO orders VALUES (10, 1, 9.50), (11, 1, 0.25), (12, 2, 4)",
)


def blocks(kind: str, url: str) -> list[str]:
    found = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    return [text.replace(URL, url) for one, text in found if one == kind]


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        execute(server, *TABLES)
        yield server


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    with Broker() as broker:
        yield os.environ | {
            "MILLSTREAM_BROKERS": broker.bootstrap,
            "MILLSTREAM_SPARK": "local[2]",
            "MILLSTREAM_SPARK_QUICK_START": "true",
            "SHOP_PASSWORD": PASSWORD,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }


def execute(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_the_guide_does_what_it_says(
    database: PostgresServer,
    env: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = database.url_of("${SHOP_PASSWORD}")
    app_code, changes_code = blocks("python", url)
    (tmp_path / "shop.py").write_text(app_code)
    application, _served, without = blocks("console", url)

    run(application, tmp_path, env)
    assert spent(tmp_path) == {"ada": (2, "9.75"), "bob": (1, "4.00")}

    execute(database, "UPDATE orders SET total = 5 WHERE id = 11")
    run("$ millstream capture approve postgres --yes", tmp_path, env)
    run("$ millstream capture run postgres --once", tmp_path, env)
    monkeypatch.setattr(os, "environ", dict(env))
    space = told(app_code + changes_code, tmp_path, monkeypatch)
    assert space["change"].after == {"id": 11, "customer": 1, "total": "5.00"}
    assert space["last"].startswith("postgres.orders@")
    assert space["later"] == []

    run(without, tmp_path, env)


def run(console: str, folder: Path, env: Mapping[str, str]) -> None:
    for line in console.splitlines():
        done = subprocess.run(
            shlex.split(line.removeprefix("$ ")),
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def spent(folder: Path) -> dict[str, Any]:
    with App("shop", data=folder / "shop.millstream").view("spent") as view:
        return {row["name"]: (row["orders"], str(row["total"])) for row in view.scan()}


def told(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    space: dict[str, Any] = {}
    exec(code, space)
    space["app"].close()
    return space
