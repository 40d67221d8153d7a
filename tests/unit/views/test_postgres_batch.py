"""What a batch comes to in columns of text must be what `netting.net` says of its rows."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millstream.base.changes import CHANGES, DELETE, INSERT, RETRACT, UPSERT
from millstream.schemas.arrow_types import schema_to_arrow
from millstream.schemas.declaration import schema_of
from millstream.views.netting import BadChange, Netted, in_order, net
from millstream.views.stores.postgres.batch import CopiedBatch, copied_batch
from millstream.views.table_layout import NullKey, TableLayout, view_layout

DDL = "k INT, s STRING, n INT"
CHANGED = f"{DDL}, _change STRING, _order BIGINT"
KEY = ("k", "s")


def table(ddl: str, *rows: tuple[Any, ...]) -> pa.Table:
    schema = schema_to_arrow(schema_of(ddl))
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def layout(ddl: str, *key: str) -> TableLayout:
    return view_layout("v", schema_of(ddl), key or KEY)


def lines(batch: CopiedBatch) -> list[bytes]:
    return b"".join(batch.marked_lines()).splitlines()


keys = some.tuples(
    some.sampled_from([0, 1, None]), some.sampled_from(["", "a", "\t", "\\N", None])
).filter(lambda key: key != (None, None))


def changes_of(words: tuple[str, ...]) -> Any:
    change = some.tuples(
        keys, some.sampled_from([1, 2, None]), some.sampled_from(words), some.sampled_from([1, 2])
    )
    return some.lists(change, max_size=12)


@pytest.mark.parametrize("words", [(UPSERT, DELETE), (INSERT, RETRACT), CHANGES])
@settings(max_examples=80, deadline=None)
@given(data=some.data())
def test_a_batch_comes_to_what_netting_says(words: tuple[str, ...], data: Any) -> None:
    changes = [(*key, n, word, order) for key, n, word, order in data.draw(changes_of(words))]
    try:
        expected = naively_netted(changes)
    except BadChange:
        with pytest.raises(BadChange, match="rows are left for key"):
            copied_batch(layout(DDL), table(CHANGED, *changes))
        return
    found = copied_batch(layout(DDL), table(CHANGED, *changes))
    assert sorted(lines(found)) == sorted(expected_lines(expected))
    assert found.null_parts == {
        frozenset(part for part, value in enumerate(key) if value is None)
        for key in expected.deletes
    }


def naively_netted(changes: list[Any]) -> Netted:
    words = [change[3] for change in changes]
    places = in_order(words, [change[4] for change in changes])
    return net(
        [words[place] for place in places], [changes[place][:3] for place in places], key_width=2
    )


def expected_lines(netted: Netted) -> list[bytes]:
    comes = [(*row, "f") for row in netted.upserts]
    goes = [(*key, None, "t") for key in netted.deletes]
    return ["\t".join(map(as_text, row)).encode() for row in [*comes, *goes]]


def as_text(value: Any) -> str:
    if value is None:
        return r"\N"
    return str(value).replace("\\", "\\\\").replace("\t", "\\t")


def test_without_words_the_last_row_of_a_key_counts() -> None:
    found = copied_batch(layout(DDL), table(DDL, (1, "a", 1), (1, None, 7), (1, "a", 2)))
    assert sorted(lines(found)) == [b"1\t\\N\t7\tf", b"1\ta\t2\tf"]


def test_numbers_that_are_equal_are_one_key() -> None:
    ddl = "x DOUBLE, n INT"
    rows = [(0.0, 1), (-0.0, 2), (float("nan"), 3), (float("nan"), 4)]
    found = copied_batch(layout(ddl, "x"), table(ddl, *rows))
    assert sorted(lines(found)) == [b"0\t2\tf", b"nan\t4\tf"]


def test_a_wholly_null_key_is_refused() -> None:
    with pytest.raises(NullKey, match=r"1 rows have no key \(k, s is null\)"):
        copied_batch(layout(DDL), table(DDL, (None, None, 1), (None, "", 1)))


def test_every_type_has_a_text_that_copy_reads() -> None:
    ddl = (
        "id INT, b BOOLEAN, x DOUBLE, raw BINARY, at TIMESTAMP, clock TIMESTAMP_NTZ,"
        " p DECIMAL(9, 2), list ARRAY<STRUCT<p: DECIMAL(9, 2), at: TIMESTAMP>>,"
        " tags MAP<STRING, DOUBLE>, w STRUCT<a: INT>"
    )
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    row = (
        *(1, True, float("inf"), b"\x00\xff", noon, noon.replace(tzinfo=None), Decimal("-0.50")),
        [{"p": Decimal("1.50"), "at": noon}, None],
        {"\n": float("nan")},
        {"a": None},
    )
    (line,) = lines(copied_batch(layout(ddl, "id"), table(ddl, row)))
    assert line.decode().split("\t") == [
        *("1", "true", "inf", r"\\x00ff"),
        *("2026-07-01 12:00:00.000000", "2026-07-01 12:00:00.000000", "-0.50"),
        '[{"p": "1.50", "at": "2026-07-01T12:00:00+00:00"}, null]',
        r'{"\\n": "NaN"}',
        *("t", r"\N", "f"),
    ]
