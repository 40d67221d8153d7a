"""The code of docs/guides/time_and_windows.md as it stands there: over topics, and static."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millstream.processing.steps.stage import Stage

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "time_and_windows.md"
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def space() -> dict[str, Any]:
    """Declared only: nothing is started."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    space: dict[str, Any] = {}
    exec("\n".join(blocks), space)
    return space


def click(at: str, url: str = "/") -> dict[str, Any]:
    return {"user": "ada", "url": url, "amount": 2, "at": at}


def visit(start: str, end: str, *path: str) -> dict[str, Any]:
    named = {"user": "ada", "session_start": start, "session_end": end}
    return named | {"clicks": len(path), "path": [*path]}


def test_a_late_click_makes_two_visits_one(space: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(space["app"], "visits")
    steps.add("clicks", click("12:00", "/a"), click("13:00", "/c"))
    steps.expect([visit("12:00", "12:30", "/a"), visit("13:00", "13:30", "/c")])
    steps.add("clicks", click("12:30", "/b"))
    steps.expect([visit("12:00", "13:30", "/a", "/b", "/c")])


@pytest.mark.full
def test_a_late_click_changes_what_was_spent_after_it(space: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(space["app"], "spent_lately")
    steps.add("clicks", click("12:00"), click("12:09"), click("12:30"))
    first, last = ({"user": "ada", "at": at, "spent": 2, "mean": 2.0} for at in ("12:00", "12:30"))
    steps.expect([first, {"user": "ada", "at": "12:09", "spent": 4, "mean": 2.0}, last])
    steps.add("clicks", click("12:05"))
    late = {"user": "ada", "at": "12:05", "spent": 4, "mean": 2.0}
    steps.expect([first, late, {"user": "ada", "at": "12:09", "spent": 6, "mean": 2.0}, last])


@pytest.mark.full
def test_clicks_are_counted_by_the_minute(space: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(space["app"], "clicks_per_minute")
    steps.add("clicks", click("12:00"), click("12:00:59"), click("12:01"))
    steps.run()
    rows = {(row["window"]["start"].minute, row["count"]) for row in steps.rows()}
    assert rows == {(0, 2), (1, 1)}


def test_a_view_is_the_same_function_of_a_static_frame(
    space: Any, millstream_session: SparkSession
) -> None:
    rows = [("ada", url, 2, NOON + timedelta(minutes=m)) for url, m in (("/b", 30), ("/a", 0))]
    [visit] = space["visits_of"](rows, millstream_session).collect()
    assert (visit.clicks, visit.path) == (2, ["/a", "/b"])
