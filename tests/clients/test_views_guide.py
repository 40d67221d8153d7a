"""The code of docs/guides/views.md as it stands there, over views that are filled as by a job."""

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream import App
from millstream.base.ports import BatchReceipt
from millstream.schemas.declaration import schema_of
from tests.contracts.view_store_contract import rows

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "views.md"
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
PER_URL = "url STRING, count BIGINT"
PER_MINUTE = f"window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, {PER_URL}"


@pytest.fixture
def blocks() -> list[str]:
    text, _, _ = GUIDE.read_text(encoding="utf-8").partition("\n## Rebuilding")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def space(
    blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The guide's application, with rows in its views."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    exec(blocks[0], space)
    app: App = space["app"]
    fill(app, "clicks_per_url", PER_URL, [[("/home", 6)], [("/home", 7)], [("/cart", 2)]])
    fill(app, "clicks_per_minute", PER_MINUTE, [[(minute(n), "/home", n + 1) for n in range(90)]])
    yield space
    app.close()


def fill(app: App, view: str, ddl: str, batches: list[list[tuple[Any, ...]]]) -> None:
    """What its job would do; it has passed whatever will be published."""
    writer = app.views.store(view).writer(1)
    epoch = writer.claim(view, schema_of(ddl))
    positions = {"clicks": dict.fromkeys(range(16), 1 << 40)}
    for number, batch in enumerate(batches):
        receipt = BatchReceipt(job=view, epoch=epoch, query="q", batch=number, positions=positions)
        writer.write(receipt, rows(ddl, *batch))
    writer.close()


def minute(number: int) -> dict[str, datetime]:
    start = NOON + timedelta(minutes=number)
    return {"start": start, "end": start + timedelta(minutes=1)}


def answers(code: str, space: dict[str, Any]) -> dict[str, Any]:
    """Runs the code; gives the value of each expression in it."""
    found = {}
    for node in ast.parse(code).body:
        text = ast.get_source_segment(code, node) or ""
        if isinstance(node, ast.Expr):
            found[text] = eval(text, space)
        else:
            exec(text, space)
    return found


def bare(code: str) -> str:
    """Where the lines break says nothing."""
    return "".join(code.split())


def test_the_questions_of_the_guide_are_answered(space: dict[str, Any], blocks: list[str]) -> None:
    found = answers("\n".join(blocks[1:]), space)

    def answer(start: str) -> Any:
        return next(value for text, value in found.items() if bare(text).startswith(bare(start)))

    home = {"url": "/home", "count": 7}
    assert answer("view.get(") == home
    assert answer('view.get("/home", after=receipt') == home
    assert answer("view.as_of(3)") == home
    assert answer("view.get_many(") == [home, {"url": "/cart", "count": 2}]
    assert answer("per_minute.get({") == {"window": minute(0), "url": "/home", "count": 1}
    hour = answer("per_minute.range(((noon,),), ((noon + timedelta")
    assert [row["window"] for row in hour] == [minute(n) for n in range(61)]
    assert answer('view.scan(where={"count >=') == [home]
    assert answer("view.sql_arrow(").to_pylist() == [{"mean": 4.5}]
    assert answer("app.sql(") == [{"url": "/home", "busiest": 90, "total": 7}]
