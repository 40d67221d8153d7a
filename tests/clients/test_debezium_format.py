"""`format="debezium"` beside a real Debezium, which reads the same log at the same time.

Debezium 3.6.1 runs in a standalone Kafka Connect, as its users run it, and writes to our broker.
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.debezium import POSTGRES_JARS, Connect

from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from millstream.capture.runner import CaptureRunner
from tests.clients.steps import unique_name
from tests.support.approvals import approved
from tests.support.broker_thread import BrokerThread
from tests.support.committed_records import committed_records
from tests.support.debezium_table import TABLES, TYPES, inserted
from tests.support.postgres_server import (
    LOGICAL,
    PASSWORD,
    USER,
    PostgresServer,
    postgres_server,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

WITHIN_S = 60.0
THEIRS = "theirs"
# Debezium's own: the type `name` is null in what it streams, and JsonConverter writes the default
# of a column where a row has null. Ours is what the row has.
NOT_COMPARED = ("c_name", "c_default", "c_text_default")
CHANGES = (
    ("INSERT INTO plain VALUES (2, 'y')", inserted(3), "UPDATE every SET c_int = 5 WHERE id = 3"),
    ("UPDATE every SET id = 4 WHERE id = 3",),
    ("DELETE FROM every WHERE id = 2",),
    ("UPDATE plain SET b = 'z' WHERE a = 2",),
    ("DELETE FROM plain WHERE a = 1",),
    ("TRUNCATE every",),
    ("INSERT INTO every (id) VALUES (9)",),
    ("INSERT INTO plain VALUES (99, 'end')",),
)


class Sides:
    """Both captures of one database, and what each wrote."""

    def __init__(self, server: PostgresServer, bootstrap: str) -> None:
        self.server, self.bootstrap = server, bootstrap
        self.ours = unique_name("ours")
        self.client = {"bootstrap.servers": bootstrap}
        CaptureControl(self.client).add(
            CaptureDefinition(
                name=self.ours,
                url="postgresql://db",
                tables=("every", "plain"),
                format="debezium",
                has_truncates=True,
            )
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        runner = CaptureRunner(
            self.client, self.ours, approval=approved(self.client, self.ours), url=self.server.url
        )
        thread = threading.Thread(target=runner.run)
        self.theirs = Connect(
            THEIRS, POSTGRES_JARS, bootstrap=self.bootstrap, connector=self._connector()
        )
        with contextlib.closing(self.theirs):
            self.theirs.start()
            thread.start()
            try:
                yield
            finally:
                runner.stop()
                thread.join(WITHIN_S)

    def _connector(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": "postgres",
            "plugin.name": "pgoutput",
            "slot.name": THEIRS,
            "publication.name": THEIRS,
            "publication.autocreate.mode": "filtered",
            "topic.prefix": THEIRS,
            "table.include.list": "public.every,public.plain",
            "provide.transaction.metadata": "true",
            "skipped.operations": "none",
        }

    def records(self, side: str, table: str) -> list[tuple[Any, Any]]:
        found = committed_records(self.bootstrap, f"{side}.public.{table}")
        return [(_json(one.key()), _json(one.value())) for one in found]

    def await_row(self, table: str, row: dict[str, Any]) -> None:
        def is_there(side: str) -> bool:
            self.theirs.require_alive()
            found = self.records(side, table)
            return any(value and value["after"] == row for _, value in found)

        for side in (THEIRS, self.ours):
            eventually(partial(is_there, side), what=f"{row} by {side}", within_s=WITHIN_S)


def _json(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """After rows were loaded, and changes streamed."""
    POSTGRES_JARS.fetched()
    data: Path = tmp_path_factory.mktemp("broker")
    with postgres_server(LOGICAL) as server, BrokerThread(data) as broker:  # noqa: SIM117 - too long
        with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as db:
            for statement in (*TYPES, *TABLES, inserted(1), "INSERT INTO every (id) VALUES (2)"):
                db.execute(statement)
            db.execute("INSERT INTO plain VALUES (1, 'x')")
            sides = Sides(server, broker.bootstrap)
            with sides.running():
                sides.await_row("plain", {"a": 1, "b": "x"})
                for statements in CHANGES:
                    with db.transaction():
                        for statement in statements:
                            db.execute(statement)
                sides.await_row("plain", {"a": 99, "b": "end"})
                yield sides


def shown(value: dict[str, Any], side: str) -> dict[str, Any]:
    """What is compared of a change: all but the names, and when it was read."""
    rows = {
        part: value[part] and {k: v for k, v in value[part].items() if k not in NOT_COMPARED}
        for part in ("before", "after")
    }
    left_out = ("version", "name")
    source = {name: one for name, one in value["source"].items() if name not in left_out}
    place = {"source": source, "transaction": value["transaction"], "fields": list(value)}
    assert value["source"]["name"] == side
    assert list(value["source"])[:3] == ["version", "connector", "name"]
    return {**rows, **place, "op": value["op"]}


def streamed(sides: Sides, side: str, table: str) -> list[Any]:
    """Without rows that were loaded, the deletes that a truncate comes to, and tombstones."""
    return [
        (None if value["op"] == "t" else key, shown(value, side))
        for key, value in sides.records(side, table)
        if value and value["source"]["snapshot"] == "false"
    ]


@pytest.mark.parametrize("table", ["every", "plain"])
def test_changes_of_every_type_are_those_of_debezium(sides: Sides, table: str) -> None:
    theirs = streamed(sides, THEIRS, table)
    assert streamed(sides, sides.ours, table) == theirs
    assert {change["op"] for _, change in theirs} == set("cudt" if table == "every" else "cud")


def test_rows_that_are_loaded_are_those_of_debezium(sides: Sides) -> None:
    def loaded(side: str) -> list[Any]:
        found = [
            (key, shown(value, side)["after"])
            for key, value in sides.records(side, "every")
            if value and value["op"] == "r"
        ]
        return sorted(found, key=str)

    assert loaded(sides.ours) == loaded(THEIRS)


def test_a_delete_is_followed_by_its_tombstone(sides: Sides) -> None:
    for side in (THEIRS, sides.ours):
        found = sides.records(side, "every")
        deletes = [place for place, (_, value) in enumerate(found) if value and value["op"] == "d"]
        assert [found[place + 1] for place in deletes] == [
            (found[place][0], None) for place in deletes
        ]


def test_rows_that_a_truncate_took_are_deleted_with_their_key_before(sides: Sides) -> None:
    def swept() -> list[Any]:
        return [
            (key, value["before"]["id"])
            for key, value in sides.records(sides.ours, "every")
            if value and value["op"] == "d" and value["source"]["snapshot"] == "incremental"
        ]

    eventually(lambda: len(swept()) == 2, what="swept deletes", within_s=WITHIN_S)
    assert sorted(swept(), key=str) == [({"id": 1}, 1), ({"id": 4}, 4)]


def test_boundaries_are_those_of_debezium(sides: Sides) -> None:
    def written(side: str) -> list[Any]:
        found = committed_records(sides.bootstrap, f"{side}.transaction")
        pairs = [(_json(one.key()), _json(one.value())) for one in found]
        for _, value in pairs:  # in the order of a hash
            (value["data_collections"] or []).sort(key=lambda one: one["data_collection"])
        return pairs

    assert written(sides.ours) == written(THEIRS)
