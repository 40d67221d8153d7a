"""Parameters in SQL of other people; every other question is tried against a real server."""

from typing import Any

import pytest

from millstream.views.store import BadQuestion
from millstream.views.stores.postgres.questions import own_sql


@pytest.mark.parametrize(
    ("text", "params", "wanted"),
    [
        ("SELECT ?, ?", [1, 2], "SELECT $1, $2"),
        ("SELECT $b, $a, $b", {"a": 1, "b": 2}, "SELECT $2, $1, $2"),
        ("SELECT $2, $1", [1, 2], "SELECT $2, $1"),
        ("SELECT '?', ?", [1], "SELECT '?', $1"),
        ("SELECT 'it''s ?', ?", [1], "SELECT 'it''s ?', $1"),
        (r"SELECT E'\'?', ?", [1], r"SELECT E'\'?', $1"),
        ('SELECT "?" FROM x', [], 'SELECT "?" FROM x'),
        ('SELECT "a""?", ?', [1], 'SELECT "a""?", $1'),
        ("SELECT ? -- ?\n, ?", [1, 2], "SELECT $1 -- ?\n, $2"),
        ("SELECT ? /* ?\n? */ , ?", [1, 2], "SELECT $1 /* ?\n? */ , $2"),
        ("SELECT $$ ? $$, ?", [1], "SELECT $$ ? $$, $1"),
        ("SELECT $x$ ? $$ ? $x$, ?", [1], "SELECT $x$ ? $$ ? $x$, $1"),
        ("SELECT tags ?? 'a' AND n = ?", [1], "SELECT tags ? 'a' AND n = $1"),
        ("SELECT 100 % 7, '%s'", [], "SELECT 100 % 7, '%s'"),
    ],
)
def test_marks_outside_of_texts_names_and_comments_are_parameters(
    text: str, params: Any, wanted: str
) -> None:
    assert own_sql(text, params).text == wanted


@pytest.mark.parametrize(
    ("text", "params"), [("SELECT ?", []), ("SELECT $a", {"b": 1}), ("SELECT ?", {"a": 1})]
)
def test_a_mark_without_a_parameter_is_refused(text: str, params: Any) -> None:
    with pytest.raises(BadQuestion, match="has no parameter"):
        own_sql(text, params)
