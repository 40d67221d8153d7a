"""A capture writes a scripted database into topics exactly once, on both brokers.

What real databases do is in tests/contracts; how it survives kills in tests/faults.
"""

import contextlib
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Never

import pyarrow as pa
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    ConfigResource,
)

from millstream.base.clock import system_clock
from millstream.base.log_clients import LogRefused, WriterFenced
from millstream.base.quantity import MIB
from millstream.base.schema import Scalar
from millstream.capture import runner as runner_module
from millstream.capture.change import Message
from millstream.capture.change_writer import KeyGained, KeyLost, KeyMoved
from millstream.capture.control import (
    CaptureControl,
    CaptureThere,
    NoSuchCapture,
    NotItsTable,
    TablesLeftOut,
)
from millstream.capture.definition import BadDefinition, CaptureDefinition
from millstream.capture.envelope import TRUNCATED_KEY
from millstream.capture.log_writer import LogWriter, RecordTooLarge
from millstream.capture.position_record import CaptureRecords, Position, position_note, status_note
from millstream.capture.runner import (
    CaptureBroken,
    CaptureRunner,
    CaptureTakenOver,
    CaptureUnknown,
)
from millstream.capture.source import CannotCapture, Finding, SourceInterrupted, SourceLost
from millstream.capture.streaming import NEW_BATCH
from millstream.capture.watch import RetainedTooMuch
from millstream.commands.capture_lines import facts_of, troubles
from millstream.schemas.avro_schema import schema_to_avro
from millstream.schemas.schema_topic import SchemaTopic
from millstream.values.avro_decoder import AvroDecoder
from millstream.values.confluent_frame import unframe
from tests.clients.steps import create_topic, unique_name
from tests.support.approvals import approved
from tests.support.committed_records import committed_records
from tests.support.scripted_source import (
    ScriptedDatabase,
    created,
    deleted,
    table_of,
    truncated,
    updated,
)
from tests.support.waiting import eventually

WITHIN_S = 60.0


class Written(NamedTuple):
    """A record of a table's topic, as tests compare it; a tombstone has no op."""

    op: str | None
    key: Any
    after: Any


class Trial:
    """A scripted database, captured under a name of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.name = bootstrap, unique_name("shop")
        self.client = {"bootstrap.servers": bootstrap}
        self.database = ScriptedDatabase(self.name)
        self.orders = self.database.table("orders")
        self.control = CaptureControl(self.client)

    def define(self, **told: Any) -> CaptureDefinition:
        facts = {"name": self.name, "url": "postgresql://db/shop", "tables": ("orders",)}
        definition = CaptureDefinition(**(facts | {"load": "none"} | told))
        self.control.add(definition)
        return definition

    def runner(self) -> CaptureRunner:
        return CaptureRunner(
            self.client,
            self.name,
            approval=approved(self.client, self.name),
            opens=self.database.open,
        )

    def run_once(self) -> str:
        return self.runner().run(once=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[CaptureRunner]:
        """Beside the test; ended with it. What it raised is in `errors`."""
        runner, self.errors = self.runner(), list[Exception]()

        def run() -> None:
            try:
                runner.run()
            except Exception as error:
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield runner
        finally:
            runner.stop()
            thread.join(WITHIN_S)
            assert not thread.is_alive()

    def values(self, topic: str) -> list[Any]:
        found = committed_records(self.bootstrap, f"{self.name}.{topic}")
        return [json.loads(one.value() or b"null") for one in found]

    def written(self, table: str = "orders") -> list[Written]:
        found = committed_records(self.bootstrap, f"{self.name}.{table}")
        return [written(json.loads(one.key() or b"null"), one.value()) for one in found]

    def records(self) -> CaptureRecords:
        return self.control.capture(self.name)

    def wait_for_rows(self, *rows: Any, table: str = "orders") -> None:
        def are_there() -> bool:
            return [one.after for one in self.written(table) if one.after] == list(rows)

        eventually(are_there, what=f"{rows} in {table}", within_s=WITHIN_S)

    def wait_for_newest(self, *rows: Any, table: str = "orders") -> None:
        wanted = {row["id"]: row for row in rows}
        eventually(
            lambda: newest(self.written(table)) == wanted,
            what=f"{rows} as the newest in {table}",
            within_s=WITHIN_S,
        )

    def wait_for_state(self, state: str) -> None:
        def is_so() -> bool:
            return (self.records().status or {}).get("state") == state

        eventually(is_so, what=state, within_s=WITHIN_S)


def written(key: Any, value: bytes | None) -> Written:
    if value is None:
        return Written(None, key, None)
    envelope = json.loads(value)
    return Written(envelope["op"], key, envelope["after"])


def order(number: int, item: str = "tea") -> dict[str, Any]:
    return {"id": number, "item": item}


@pytest.fixture
def trial(bootstrap: str) -> Trial:
    return Trial(bootstrap)


# --- what is written ------------------------------------------------------------------------------


def test_changes_come_in_their_order_with_a_tombstone_behind_a_delete(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)), created(trial.orders, order(2)))
    trial.database.commit(updated(trial.orders, order(1, "milk")), deleted(trial.orders, order(2)))
    assert trial.run_once() == "caught up"
    assert trial.written() == [
        Written("c", {"id": 1}, order(1)),
        Written("c", {"id": 2}, order(2)),
        Written("u", {"id": 1}, order(1, "milk")),
        Written("d", {"id": 2}, None),
        Written(None, {"id": 2}, None),
    ]
    assert trial.database.confirmed == 2


def test_a_change_is_known_by_its_commit_and_its_place_there(trial: Trial) -> None:
    trial.define()
    trial.database.commit(*(created(trial.orders, order(number)) for number in range(3)))
    trial.database.commit(created(trial.orders, order(3)))
    trial.run_once()
    sources = [value["source"] for value in trial.values("orders")]
    assert [(one["commit"], one["seq"]) for one in sources] == [
        ("0/1", 0),
        ("0/1", 1),
        ("0/1", 2),
        ("0/2", 0),
    ]


def test_a_second_run_goes_on_where_the_first_one_ended(trial: Trial) -> None:
    trial.define()
    for number in range(3):
        trial.database.commit(created(trial.orders, order(number)))
        trial.run_once()
    assert [one.after for one in trial.written()] == [order(0), order(1), order(2)]


def test_an_interrupted_stream_neither_loses_nor_repeats_a_change(trial: Trial) -> None:
    trial.define()
    for number in range(0, 20, 2):
        trial.database.commit(created(trial.orders, order(number)))
        trial.database.commit(created(trial.orders, order(number + 1)))
        trial.database.interrupt(SourceInterrupted("the network was cut"))
        trial.run_once()
    assert [one.after for one in trial.written()] == [order(number) for number in range(20)]


def test_a_change_of_now_is_read_while_the_capture_runs(trial: Trial) -> None:
    trial.define()
    with trial.running():
        for number in range(3):
            at_ms = time.time_ns() // 1_000_000
            trial.database.commit(created(trial.orders, order(number)), at_ms=at_ms)
            trial.wait_for_rows(*map(order, range(number + 1)))


def test_a_large_transaction_comes_whole(trial: Trial) -> None:
    """More changes than one batch has."""
    trial.define(has_boundaries=False)
    count = NEW_BATCH.changes_max + 1
    trial.database.commit(*(created(trial.orders, order(number)) for number in range(count)))
    trial.run_once()
    sources = [value["source"] for value in trial.values("orders")]
    assert [one["seq"] for one in sources] == list(range(count))


def test_a_row_may_have_megabytes(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1, "tea" * MIB)))
    trial.run_once()
    assert [one.after for one in trial.written()] == [order(1, "tea" * MIB)]


def test_a_row_that_is_too_large_is_named(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(7, "x" * 8 * MIB)))
    with pytest.raises(RecordTooLarge, match='"id":7'):
        trial.run_once()
    assert "at most" in (trial.records().status or {})["error"]


def test_a_row_that_the_topic_does_not_take_is_told(trial: Trial, admin: AdminClient) -> None:
    config = {"max.message.bytes": "2000", "cleanup.policy": "compact"}
    create_topic(admin, trial.orders.topic, config=config)
    trial.define()
    trial.database.commit(created(trial.orders, order(7, secrets.token_hex(4_000))))
    with pytest.raises(LogRefused, match="MSG_SIZE_TOO_LARGE"):
        trial.run_once()


def test_a_table_without_a_key_has_records_without_keys(trial: Trial) -> None:
    visits = trial.database.table("visits", key=())
    trial.define()
    trial.database.commit(created(visits, order(1)), deleted(visits, order(1)))
    trial.run_once()
    assert trial.written("visits") == [Written("c", None, order(1)), Written("d", None, None)]


def test_a_truncate_is_told_in_every_partition(trial: Trial) -> None:
    trial.define(partitions=3)
    trial.database.commit(truncated(trial.orders))
    trial.run_once()
    found = committed_records(trial.bootstrap, f"{trial.name}.orders")
    assert sorted(one.partition() or 0 for one in found) == [0, 1, 2]
    assert [json.loads(one.value() or b"")["op"] for one in found] == ["t", "t", "t"]


def test_a_key_is_where_other_clients_would_put_it(trial: Trial) -> None:
    """By Kafka's murmur2: Java's default for these keys and 4 partitions."""
    trial.define(partitions=4)
    trial.database.commit(*(created(trial.orders, order(number)) for number in range(1, 6)))
    trial.run_once()
    found = committed_records(trial.bootstrap, f"{trial.name}.orders")
    places = {json.loads(one.key() or b"")["id"]: one.partition() for one in found}
    assert places == {number: murmur2(b'{"id":%d}' % number) % 4 for number in range(1, 6)}


def test_the_topic_of_a_table_with_a_key_is_compacted(trial: Trial, admin: AdminClient) -> None:
    visits = trial.database.table("visits", key=())
    trial.define()
    trial.run_once()
    assert cleanup_policy(admin, trial.orders.topic) == "compact"
    assert cleanup_policy(admin, visits.topic) == "delete"
    assert cleanup_policy(admin, "_captures") == "compact"


def test_boundaries_count_the_changes_of_each_transaction(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)), deleted(trial.orders, order(1)))
    trial.database.commit()
    trial.run_once()
    found = trial.values("transactions")
    assert [(one["status"], one["event_count"]) for one in found] == [("BEGIN", None), ("END", 2)]
    assert found[1]["data_collections"] == [{"data_collection": "public.orders", "event_count": 2}]


def test_without_boundaries_there_is_no_topic_for_them(trial: Trial, admin: AdminClient) -> None:
    trial.define(has_boundaries=False)
    trial.database.commit(created(trial.orders, order(1)))
    trial.run_once()
    assert f"{trial.name}.transactions" not in admin.list_topics(timeout=WITHIN_S).topics


def test_another_shape_of_a_table_is_another_version_also_after_a_restart(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)))
    trial.run_once()
    wider = table_of(
        "orders", capture=trial.name, id=Scalar.BIGINT, item=Scalar.STRING, price=Scalar.DOUBLE
    )
    trial.database.capture(wider)
    trial.database.commit(created(wider, {**order(2), "price": 1.5}))
    trial.run_once()
    trial.database.commit(created(wider, {**order(3), "price": 2.5}))
    trial.run_once()
    versions = [value["source"]["schema_version"] for value in trial.values("orders")]
    assert versions == [1, 2, 2]
    assert [len(table.columns) for table in trial.records().schemas.values()] == [2, 3]


@pytest.mark.parametrize(
    ("key", "later", "error"),
    [("id", "", KeyLost), ("", "id", KeyGained), ("id", "item", KeyMoved)],
)
def test_a_table_whose_key_changes_stops_the_capture(
    trial: Trial, key: str, later: str, error: type[Exception]
) -> None:
    table = trial.database.table("visits", key=key.split())
    trial.define()
    trial.database.commit(created(table, order(1)))
    trial.run_once()
    changed = trial.database.table("visits", key=later.split())
    trial.database.commit(created(changed, order(2)))
    with pytest.raises(error, match=rf"`millstream topics delete {table.topic}`"):
        trial.run_once()
    assert [one.after for one in trial.written("visits")] == [order(1)]


def test_avro_says_the_same_with_the_types_of_the_columns(trial: Trial) -> None:
    bills = trial.database.table(
        "bills", id=Scalar.BIGINT, at=Scalar.TIMESTAMP, paper=Scalar.BINARY, item=Scalar.STRING
    )
    trial.define(encoding="avro")
    row = {"id": 1, "at": "2026-01-01T12:00:00.123456Z", "paper": "AP8=", "item": "tea"}
    trial.database.commit(created(bills, row), created(trial.orders, order(1)))
    trial.database.commit(updated(bills, {"id": 1}, unavailable=("item",)), deleted(bills, row))
    trial.run_once()
    found = committed_records(trial.bootstrap, bills.topic)
    assert [one.key() for one in found] == [b'{"id":1}'] * 4
    assert found[3].value() is None
    values = decoded_avro(trial.client, [one.value() or b"" for one in found[:3]])
    assert [value["op"] for value in values] == ["c", "u", "d"]
    assert values[0]["after"] == {
        "id": 1,
        "at": datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
        "paper": b"\x00\xff",
        "item": "tea",
    }
    assert values[1]["unavailable"] == ["item"]
    assert (values[2]["source"]["commit"], values[2]["source"]["seq"]) == ("0/2", 1)


# --- rows that are there already ------------------------------------------------------------------


def test_rows_that_are_there_are_loaded_once(trial: Trial) -> None:
    trial.database.put(trial.orders, order(1), order(2))
    trial.define(load="all")
    trial.database.commit(created(trial.orders, order(3)))
    trial.run_once()
    trial.run_once()
    assert newest(trial.written()) == {1: order(1), 2: order(2), 3: order(3)}
    assert [one.key["id"] for one in trial.written() if one.op == "r"].count(1) == 1


def test_a_reload_repeats_the_rows_and_deletes_what_is_gone(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)), created(trial.orders, order(2)))
    trial.run_once()
    trial.database.rows["public.orders"].pop(b'{"id":2}')  # a rewrite that nobody logged
    trial.control.reload(trial.name, "orders")
    with trial.running():
        trial.wait_for_newest(order(1))
        wait_until_loaded(trial)
    loaded = [one for one in trial.written() if one.op == "r"]
    trial.run_once()
    assert [one for one in trial.written() if one.op == "r"] == loaded, "it was done again"


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_truncate_leaves_no_key_that_was_written_before_it(trial: Trial, encoding: str) -> None:
    trial.define(encoding=encoding)
    trial.database.commit(created(trial.orders, order(1)), created(trial.orders, order(2)))
    trial.database.commit(
        created(trial.orders, order(3)), truncated(trial.orders), created(trial.orders, order(2))
    )
    trial.run_once()
    found = committed_records(trial.bootstrap, trial.orders.topic)
    values = {one.key(): one.value() for one in found}
    assert {key for key, value in values.items() if value} == {TRUNCATED_KEY, b'{"id":2}'}


def test_a_table_that_the_database_rewrote_is_loaded_anew(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)))
    trial.database.rows["public.orders"][b'{"id":1}'] = b'{"id":1,"item":"rewritten"}'
    trial.database.commit(reloads=("public.orders",))
    trial.run_once()
    assert newest(trial.written()) == {1: order(1, "rewritten")}


def test_a_table_that_is_added_is_loaded_while_others_stream(trial: Trial) -> None:
    definition = trial.define(load="all")
    with trial.running():
        trial.database.commit(created(trial.orders, order(1)))
        trial.wait_for_newest(order(1))
        customers = trial.database.table("customers")
        trial.database.put(customers, {"id": 7, "item": "Ada"})
        trial.control.add_tables(trial.name, ["customers"])
        trial.wait_for_newest({"id": 7, "item": "Ada"}, table="customers")
        trial.database.commit(created(trial.orders, order(2)))
        trial.wait_for_newest(order(1), order(2))
    assert trial.database.added == ["public.customers"]
    assert trial.records().definition != definition


def test_lost_changes_are_made_good_by_a_reload_of_all(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)), created(trial.orders, order(2)))
    trial.run_once()
    trial.database.rows["public.orders"].pop(b'{"id":1}')
    trial.database.interrupt(SourceLost("the slot is gone: `millstream capture reload`"))
    with pytest.raises(SourceLost):
        trial.run_once()
    status = trial.records().status or {}
    assert (status["state"], status["error"]) == (
        "failed",
        "the slot is gone: `millstream capture reload`",
    )
    trial.control.reload(trial.name)
    trial.run_once()
    assert newest(trial.written()) == {2: order(2)}
    assert trial.database.prepared_times == 2
    trial.run_once()
    assert trial.database.prepared_times == 2


# --- events of an outbox --------------------------------------------------------------------------


def test_rows_of_an_outbox_are_events_and_then_deleted(trial: Trial) -> None:
    outbox = trial.database.table(
        "outbox", topic=Scalar.STRING, id=Scalar.BIGINT, payload=Scalar.STRING
    )
    trial.define(tables=("orders", "outbox"), outbox="outbox")
    topic = f"{trial.name}.billing"
    row = {"id": 5, "topic": topic, "key": "order 1", "payload": '{"amount":1}'}
    trial.database.commit(created(trial.orders, order(1)), created(outbox, row))
    trial.database.commit(deleted(outbox, row))
    trial.run_once()
    (event,) = committed_records(trial.bootstrap, topic)
    assert (event.key(), event.value(), event.headers()) == (
        b"order 1",
        b'{"amount":1}',
        [("id", b"5")],
    )
    assert trial.written("outbox") == []
    assert trial.database.deleted_keys == [b'{"id":5}']


def test_messages_are_events_or_are_kept(trial: Trial) -> None:
    trial.define()
    topic = f"{trial.name}.billing"
    trial.database.commit(Message(f"outbox:{topic}:k", b"paid"), Message("audit", b"\x00"))
    trial.run_once()
    (event,) = committed_records(trial.bootstrap, topic)
    assert (event.key(), event.value()) == (b"k", b"paid")
    (kept,) = trial.values("messages")
    assert kept["message"] == {"prefix": "audit", "content": "AA=="}


# --- what is wanted of it -------------------------------------------------------------------------


def test_a_paused_capture_waits_and_goes_on(trial: Trial) -> None:
    trial.define()
    with trial.running():
        trial.database.commit(created(trial.orders, order(1)))
        trial.wait_for_rows(order(1))
        trial.control.pause(trial.name)
        trial.wait_for_state("paused")
        trial.database.commit(created(trial.orders, order(2)))
        trial.control.resume(trial.name)
        trial.wait_for_rows(order(1), order(2))


def test_a_clock_that_is_put_back_keeps_no_capture_from_what_is_wanted(trial: Trial) -> None:
    trial.define()
    put_back_ms = 0

    def clock() -> int:
        return system_clock() - put_back_ms

    runner = CaptureRunner(
        trial.client,
        trial.name,
        approval=approved(trial.client, trial.name),
        opens=trial.database.open,
        now_ms=clock,
    )
    with ThreadPoolExecutor(1) as beside:
        ended = beside.submit(runner.run)
        trial.wait_for_state("streaming")
        put_back_ms = 3_600_000
        runner.stop()
        try:
            assert ended.result(WITHIN_S) == "stopped"
        finally:
            put_back_ms = 0


def test_nothing_is_left_of_a_dropped_capture_but_its_topics(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)))
    with trial.running():
        trial.wait_for_rows(order(1))
        trial.control.drop(trial.name)
        eventually(lambda: not trial.database.is_prepared, what="a drop", within_s=WITHIN_S)
        eventually(lambda: trial.name not in trial.control.captures(), what="no capture")
    with pytest.raises(NoSuchCapture):
        trial.control.capture(trial.name)
    with pytest.raises(CaptureUnknown):
        trial.run_once()
    assert len(trial.written()) == 1


def test_a_database_that_lacks_something_is_left_alone(trial: Trial) -> None:
    trial.define()
    trial.database.findings.append(Finding(what="wal_level is replica", mend="ALTER SYSTEM ..."))
    with pytest.raises(CannotCapture, match=r"wal_level is replica: ALTER SYSTEM"):
        trial.run_once()
    assert not trial.database.is_prepared


def test_an_older_run_is_fenced_and_names_the_newer_one(trial: Trial) -> None:
    trial.define()
    with trial.running():
        trial.database.commit(created(trial.orders, order(1)))
        trial.wait_for_rows(order(1))
        trial.run_once()
        trial.database.commit(created(trial.orders, order(2)))
        eventually(lambda: bool(trial.errors), what="an end of the older run", within_s=WITHIN_S)
    assert isinstance(trial.errors[0], CaptureTakenOver)
    trial.run_once()
    assert [one.after for one in trial.written()] == [order(1), order(2)]


def test_what_was_not_committed_is_not_read_and_not_repeated(trial: Trial) -> None:
    """A run that dies in the middle of a transaction: another takes over."""
    trial.define()
    trial.run_once()
    dead = LogWriter(trial.client, trial.name)
    dead.open()
    dead.put(trial.orders.topic, b"{}", b'{"op":"c","after":"half of it"}')
    dead.note([position_note(trial.name, Position(resume="0/9"))])
    dead.flush()
    trial.database.commit(created(trial.orders, order(1)))
    trial.run_once()
    assert [one.after for one in trial.written()] == [order(1)]
    with pytest.raises(WriterFenced):
        dead.commit()


def test_what_another_capture_left_open_holds_nothing_back(trial: Trial) -> None:
    """Else the last position could not be read, and changes would come again."""
    trial.define()
    dead = LogWriter(trial.client, unique_name("dead"))
    dead.open()
    dead.note([status_note("dead", {})])
    dead.flush()
    for number in range(2):
        trial.database.commit(created(trial.orders, order(number)))
        trial.run_once()
    assert [one.after for one in trial.written()] == [order(0), order(1)]


def test_too_much_kept_by_the_database_is_acted_on_as_declared(trial: Trial) -> None:
    trial.define(retained_bytes_max=100, at_retained_max="drop")
    trial.database.retained_bytes = 60
    trial.run_once()
    assert "keeps 60 bytes" in (trial.records().status or {})["warnings"][0]
    trial.database.retained_bytes = 100
    with pytest.raises(RetainedTooMuch):
        trial.run_once()
    assert not trial.database.is_prepared
    assert (trial.records().status or {})["state"] == "failed"


def test_the_status_tells_how_far_it_is(trial: Trial) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, order(1)))
    trial.run_once()
    status = trial.records().status or {}
    assert status["state"] == "ended"
    assert status["position"] == "0/1"
    assert status["changes"] == 1


def test_who_waits_for_an_end_gets_one_when_the_database_stays_away(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "PAUSE_SECONDS_FIRST", 0.0)
    trial.define()
    tries: list[str] = []

    def is_away(definition: CaptureDefinition, **_: object) -> Never:
        tries.append(definition.name)
        raise SourceInterrupted("nobody is there")

    with pytest.raises(SourceInterrupted, match="nobody is there"):
        CaptureRunner(
            trial.client, trial.name, approval=approved(trial.client, trial.name), opens=is_away
        ).run(once=True)
    assert len(tries) == runner_module.ONCE_FAILURES_MAX + 1


def test_a_run_that_is_to_end_ends_when_all_its_tables_are_gone(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    trial.define()
    trial.database.commit(created(trial.orders, {"id": 1, "item": "tea"}))
    assert trial.run_once() == "caught up"
    trial.database.captured.clear()
    assert trial.run_once() == "caught up"
    assert f"`millstream capture drop {trial.name}`" in caplog.text


def test_an_error_that_nobody_foresaw_is_shown_until_a_run_has_passed_it(trial: Trial) -> None:
    trial.define()
    trial.database.interrupt(IndexError("list index out of range"))
    with pytest.raises(CaptureBroken, match="IndexError: list index out of range"):
        trial.run_once()
    status = trial.records().status or {}
    assert (status["state"], "IndexError" in status["error"]) == ("failed", True)
    facts = facts_of(trial.name, trial.records(), now_ms=system_clock())
    assert "IndexError" in "".join(troubles([facts]))
    trial.run_once()
    assert (trial.records().status or {})["error"] == ""


def test_a_paused_capture_that_is_run_once_says_that_it_wrote_nothing(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    trial.define()
    trial.control.pause(trial.name)
    assert trial.run_once() == "stopped"
    assert f"millstream capture resume {trial.name}" in caplog.text


def test_a_file_of_sqlite_is_captured_by_its_url(trial: Trial, tmp_path: Path) -> None:
    """A real database, from its URL to the topic."""
    file = tmp_path / "shop.db"
    trial.define(url=f"sqlite:///{file}", load="all")
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        database.execute("INSERT INTO orders VALUES (1, 'tea'), (2, 'milk')")
        runner = CaptureRunner(
            trial.client, trial.name, approval=approved(trial.client, trial.name)
        )
        assert runner.run(once=True) == "caught up"
        database.execute("UPDATE orders SET item = 'salt' WHERE id = 2")
        database.execute("DELETE FROM orders WHERE id = 1")
        assert runner.run(once=True) == "caught up"
    assert newest(trial.written()) == {2: order(2, "salt")}
    assert [one.op for one in trial.written()] == ["r", "r", "u", "d", None]


def test_a_definition_is_changed_where_its_topics_do_not_depend_on_it(trial: Trial) -> None:
    trial.define()
    trial.define()
    trial.define(tables=("orders", "customers"))
    trial.define(tables=("orders", "customers"), retained_bytes_max=1 << 30)
    with pytest.raises(TablesLeftOut, match=r"not named here: orders\. Name them too"):
        trial.define(tables=("customers",))
    with pytest.raises(CaptureThere, match="with other outbox"):
        trial.define(tables=("orders", "customers"), outbox="orders")


def test_a_reload_of_a_table_that_it_does_not_have_is_refused(trial: Trial) -> None:
    trial.define()
    trial.run_once()
    with pytest.raises(NotItsTable, match=r"public\.orders"):
        trial.control.reload(trial.name, "customers")


def decoded_avro(client: dict[str, str], values: list[bytes]) -> list[Any]:
    """By the schemas that the headers name, as any reader does."""
    with SchemaTopic(client) as schemas:

        def writer_of(id: int) -> Any:
            version = schemas.with_id(id)
            return None if version is None else schema_to_avro(version.schema)

        version = schemas.with_id(unframe(values[0])[0])
        assert version is not None
        decoder = AvroDecoder(version.schema, writers=writer_of)
        found = decoder.decode(pa.array(values, pa.binary()))
    assert found.bad == []
    return list(found.batch.to_pylist())


def newest(records: list[Written]) -> dict[int, Any]:
    rows: dict[int, Any] = {}
    for one in records:
        rows.pop(one.key["id"], None)
        if one.after is not None:
            rows[one.key["id"]] = one.after
    return rows


def wait_until_loaded(trial: Trial) -> None:
    def is_loaded() -> bool:
        return '"done"' in trial.records().loads["public.orders"]

    eventually(is_loaded, what="a load that is done", within_s=WITHIN_S)


def cleanup_policy(admin: AdminClient, topic: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(WITHIN_S)
    return str(found["cleanup.policy"].value)


def murmur2(data: bytes) -> int:
    """Kafka's, made positive: org.apache.kafka.common.utils.Utils."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_the_format_of_debezium_is_of_postgresql(trial: Trial, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    trial.define(url=f"sqlite:///{file}", format="debezium")
    with pytest.raises(BadDefinition, match="cannot write sqlite as Debezium does"):
        CaptureRunner(trial.client, trial.name, approval=approved(trial.client, trial.name)).run(
            once=True
        )
