"""What an App makes of its events: columns for jobs, names of inputs, what is missing."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream import Aggregate, App, event
from millstream.aggregates import UnknownAggregate, events_schema
from millstream.base.schema import DataType, Struct
from millstream.eventsourcing.personal import Personal

NOWHERE = "127.0.0.1:1"


@event
class Deposited:
    amount: int
    note: str | None = None


@event
class Rated:
    amount: float
    by_whom: Personal[str]


@event
class Priced:
    note: Decimal
    on: datetime


@event
class Empty:
    pass


@event
class Timed:
    took: timedelta


class Account(Aggregate):
    balance = 0

    def deposit(self, amount: int) -> Iterator[object]:
        yield Deposited(amount)

    def on_Deposited(self, found: Deposited) -> None:  # noqa: N802 - the name of the event
        self.balance += found.amount


def data_of(*kinds: type) -> dict[str, str]:
    found: Any = events_schema(kinds).field("data")
    assert found is not None
    struct: DataType = found.type
    assert isinstance(struct, Struct)
    return {one.name: str(one.type) for one in struct}


def test_data_has_the_fields_of_all_events() -> None:
    assert data_of(Deposited, Rated, Empty) == {
        "amount": "DOUBLE",
        "note": "STRING",
        "by_whom": "STRING",
    }


def test_every_field_of_data_may_be_missing() -> None:
    found: Any = events_schema([Deposited]).field("data")
    assert all(one.nullable for one in found.type)


def test_fields_that_do_not_go_together_are_left_out_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert data_of(Deposited, Priced) == {"amount": "BIGINT", "on": "TIMESTAMP"}
    assert "jobs do not see data.note: it is STRING in event Deposited" in caplog.text


def test_an_event_whose_type_has_no_column_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert data_of(Deposited, Timed) == {"amount": "BIGINT", "note": "STRING"}
    assert "jobs do not see the data of event Timed" in caplog.text


def test_events_without_fields_have_no_data() -> None:
    assert events_schema([Empty]).field("data") is None
    assert events_schema([]).field("stream") is not None


def test_events_are_an_input_of_jobs_by_two_names(tmp_path: Path) -> None:
    with App("bank", brokers=NOWHERE, data=tmp_path) as app:
        app.view(key="stream")(balances)
        app.view(key="stream", name="more", inputs={"events": "bank.events"})(balances)
        app.aggregates(Account, partitions=3)  # declared after the jobs that read its events
        for job in app.catalog.jobs.values():
            declared = app.catalog.inputs_of(job)["events"]
            assert (declared.name, declared.partitions) == ("bank.events", 3)
            assert declared.schema is not None
            assert declared.schema.field("data") is not None


def test_a_topic_of_ones_own_comes_before_the_events_of_the_app(tmp_path: Path) -> None:
    with App("bank", brokers=NOWHERE, data=tmp_path) as app:
        app.topic("events", schema="stream STRING")
        app.view(key="stream")(balances)
        assert app.catalog.inputs_of(app.catalog.job("balances"))["events"].name == "events"


def balances(events: Any) -> Any:
    return events


def test_a_stream_belongs_to_the_aggregate_of_its_name(tmp_path: Path) -> None:
    with App("bank", brokers=NOWHERE, data=tmp_path) as app:
        bank = app.aggregates(Account)
        assert app.events.of_stream("Account:a:b") == (bank, "a:b")
        with pytest.raises(UnknownAggregate, match="Did you mean Account"):
            app.events.of_stream("Acount:a")


def test_without_its_library_event_sourcing_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "import millstream\n"
        "try:\n    millstream.Aggregate\n"
        "except millstream.Rejected as error:\n    print(error)\n"
        "try:\n    millstream.App('shop', brokers='127.0.0.1:1').event_store()\n"
        "except millstream.Rejected as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.count("pip install 'millstream[eventsourcing]'") == 2, done.stderr
