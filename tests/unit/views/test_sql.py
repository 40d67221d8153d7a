"""SQL over views: its answers, and what it cannot reach."""

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.views.sql import SqlNotInstalled, answer_arrow, answer_rows, named_in
from millstream.views.store import BadQuestion

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
COUNTS = pa.table(
    {
        "url": ["/", "/a", "/b"],
        "count": pa.array([3, 1, None], pa.int64()),
        "price": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(10, 2)),
        "at": pa.array([NOON] * 3, pa.timestamp("us", "UTC")),
        "window": pa.array([{"start": NOON}] * 3, pa.struct({"start": pa.timestamp("us", "UTC")})),
        "facts": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)
NAMES = pa.table({"url": ["/", "/a"], "name": ["Home", "A"]})
TABLES = {"counts": COUNTS, "names": NAMES}


def test_values_keep_their_types() -> None:
    (row,) = answer_rows("SELECT * FROM counts WHERE url = ?", ["/"], TABLES)
    assert row == {
        "url": "/",
        "count": 3,
        "price": Decimal("1.50"),
        "at": NOON,
        "window": {"start": NOON},
        "facts": {"a": 1},
    }


def test_a_sum_of_integers_is_one() -> None:
    text = 'SELECT sum(count) AS n, sum(price) AS p, max("window".start) AS m FROM counts'
    assert answer_rows(text, (), TABLES) == [{"n": 4, "p": Decimal("3.75"), "m": NOON}]
    assert type(answer_rows(text, (), TABLES)[0]["n"]) is int
    nothing = "SELECT sum(count) AS n FROM counts WHERE url = 'none'"
    assert answer_rows(nothing, (), TABLES) == [{"n": None}]


def test_parameters_are_values() -> None:
    by_place = "SELECT url FROM counts WHERE url = ? OR count > ? ORDER BY url"
    assert answer_rows(by_place, ["' OR 1=1 --", 2], TABLES) == [{"url": "/"}]
    by_name = 'SELECT url FROM counts WHERE "at" >= $since AND url = $url'
    assert answer_rows(by_name, {"since": NOON, "url": "/a"}, TABLES) == [{"url": "/a"}]


def test_several_views_can_be_joined() -> None:
    text = "SELECT name, count FROM counts JOIN names USING (url) ORDER BY name DESC"
    assert answer_arrow(text, (), TABLES).to_pylist() == [
        {"name": "Home", "count": 3},
        {"name": "A", "count": 1},
    ]


def test_which_views_a_text_names() -> None:
    text = 'select * from Counts join "names" using (url) -- counts_old'
    assert named_in(text, ["counts", "names", "count", "old", "a.b"]) == ["counts", "names"]


@pytest.mark.parametrize(
    "text",
    [
        "DROP VIEW counts",
        "SELECT 1; SELECT 2",
        "INSERT INTO counts VALUES (1)",
        "COPY counts TO 'stolen.csv'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SET memory_limit = '100GB'",
        "PRAGMA database_list",
        "",
    ],
)
def test_only_a_select_is_answered(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadQuestion, match="SQL over views is one SELECT"):
        answer_rows(text, (), TABLES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "source",
    [
        "read_text('{file}')",
        "read_csv('{file}')",
        "'{file}'",
        "glob('{directory}/*')",
        "sniff_csv('{file}')",
        "read_blob('http://127.0.0.1:9/x')",
        "secret",  # a variable of this function
        '"table"',  # one of the function that asks DuckDB
    ],
)
def test_sql_sees_no_file_and_no_variable(source: str, tmp_path: Path) -> None:
    secret = pa.table({"a": [1]})
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    text = f"SELECT * FROM {source.format(file=file, directory=tmp_path)}"
    with pytest.raises(BadQuestion, match="SQL over counts, names"):
        answer_rows(text, (), TABLES)
    assert secret.num_rows == 1


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT * FROM clicks", [], "SQL over counts, names: .*clicks does not exist"),
        ("SELEC", [], "syntax error"),
        ("SELECT * FROM counts WHERE url = ?", [], "Values were not provided"),
        ("SELECT visits FROM counts", [], "visits"),
    ],
)
def test_a_bad_question_is_told(text: str, params: list[Any], message: str) -> None:
    with pytest.raises(BadQuestion, match=message):
        answer_rows(text, params, TABLES)


def test_an_answer_has_a_bound_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = sys.modules["millstream.views.sql"].SETTINGS
    monkeypatch.setitem(settings, "memory_limit", "20MB")
    with pytest.raises(BadQuestion, match="Out of Memory"):
        answer_rows("SELECT count(*) FROM (SELECT DISTINCT x FROM range(9000000) t(x))", (), TABLES)


def test_an_answer_has_a_bound_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take minutes."""
    monkeypatch.setattr("millstream.views.sql.SQL_SECONDS_MAX", 0.1)
    text = "SELECT sum(x * x % 7) AS s FROM range(100000000000) AS t(x)"
    with pytest.raises(BadQuestion, match=r"took more than 0\.1 s, and was ended"):
        answer_rows(text, (), TABLES)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(SqlNotInstalled, match=r"pip install 'millstream\[sql\]'"):
        answer_rows("SELECT 1", (), TABLES)
