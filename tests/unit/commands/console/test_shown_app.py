"""What the console says of an application: its jobs' errors, and the flow without a broker."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from millstream import App
from millstream.base.clock import system_clock
from millstream.base.schema import Scalar
from millstream.capture.position_record import CaptureRecords
from millstream.commands.connecting import BrokerUnreachable
from millstream.commands.console.shown_app import ShownApp
from millstream.processing.jobs.job_status import StatusFiles
from millstream.processing.jobs.progress import JobProgress
from millstream.web.console.facts import Node
from tests.support.scripted_source import table_of


def test_of_a_jobs_code_the_file_and_line_are_shown_and_no_directory(tmp_path: Path) -> None:
    app = App("shop", data=tmp_path / "data", brokers="127.0.0.1:1")
    app.topic("clicks", schema="url STRING")
    app.view(key="url", name="counts")(lambda clicks: clicks)
    (tmp_path / "data" / "jobs" / "counts").mkdir(parents=True)
    failed = JobProgress(
        job="counts", state="failed", error=f"no price (at {tmp_path}/my shop/shop.py:53)"
    )
    StatusFiles(tmp_path / "data" / "jobs", system_clock).look([failed])
    with closing(ShownApp(app)) as shown:
        [job] = shown.declared.jobs()
    assert job.status is not None
    assert job.status.progress.error == "no price (at shop.py:53)"
    assert job.place.startswith("test_shown_app.py:")


def test_the_flow_keeps_the_topics_of_captured_tables_while_no_broker_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("shop", data=tmp_path / "data", brokers="127.0.0.1:1")
    app.capture(f"sqlite:///{tmp_path}/shop.db", tables=["orders"], name="shop")
    app.view(key="id", name="open_orders")(lambda orders: orders)
    table = replace(table_of("orders", id=Scalar.BIGINT), name="main.orders", topic="shop.orders")
    known = {"shop": CaptureRecords(schemas={(table.name, 1): table})}
    with closing(ShownApp(app)) as shown:
        monkeypatch.setattr(shown.declared, "_capture_records", lambda: known)
        there = shown.declared.flow()
        monkeypatch.setattr(shown.declared, "_capture_records", silent)
        assert shown.declared.flow() == there
    assert Node("topic", "shop.orders") in there.nodes


def silent() -> dict[str, CaptureRecords]:
    raise BrokerUnreachable(brokers="127.0.0.1:1", reason="nobody")
