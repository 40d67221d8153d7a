"""A view compared with a recomputation of it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream.views.store import ViewReads
from millstream.views.stores.sqlite.file import SqliteStore
from millstream.views.verification import ViewDiffers, compared, is_in_sample, write_whole
from tests.contracts.view_store_contract import rows

DDL = "url STRING, n DOUBLE, tags ARRAY<STRING>, _change STRING"


@pytest.fixture
def reads(tmp_path: Path) -> Iterator[Any]:
    """Makes a view of these rows, and reads it."""
    opened: list[Any] = []

    def make(*found: tuple[Any, ...]) -> ViewReads:
        path = tmp_path / f"{len(opened)}.sqlite"
        store = SqliteStore(path, view="sums", key=["url"])
        write_whole(store, rows(DDL, *((*row, "upsert") for row in found)), job="sums")
        opened.append(closing(store.reader()))
        return opened[-1].thing  # type: ignore[no-any-return]  # closing does not say

    yield make
    for one in opened:
        one.__exit__()


def test_the_same_rows_are_the_same_whatever_they_hold(reads: Any) -> None:
    found = [("/", 1.0, ["a"]), ("/nan", float("nan"), []), ("/null", None, None)]
    verdict = compared(reads(*found), reads(*reversed(found)))
    assert (verdict.is_same, verdict.rows) == (True, 3)


def test_a_row_that_is_missing_other_or_too_much_is_told(reads: Any) -> None:
    kept = reads(("/", 1.0, []), ("/much", 1.0, []), ("/same", 1.0, []))
    verdict = compared(kept, reads(("/", 2.0, []), ("/few", 1.0, []), ("/same", 1.0, [])))
    assert (verdict.rows, verdict.differing) == (4, 3)
    assert [str(one) for one in verdict.examples] == [
        "url '/' is {'n': 1.0, 'tags': [], 'url': '/'}, "
        "recomputed {'n': 2.0, 'tags': [], 'url': '/'}",
        "url '/few' is not there, recomputed {'n': 1.0, 'tags': [], 'url': '/few'}",
        "url '/much' is {'n': 1.0, 'tags': [], 'url': '/much'}, recomputed not there",
    ]
    told = ViewDiffers(view="sums", generation=2, verdict=verdict)
    assert "view sums, generation 2: 3 of 4 rows are not what its topics come to" in str(told)


def test_zero_is_minus_zero_which_not_every_store_keeps_apart(reads: Any) -> None:
    assert compared(reads(("/", 0.0, [])), reads(("/", -0.0, []))).is_same


def test_a_sample_has_the_same_keys_of_both(reads: Any) -> None:
    kept = reads(*((f"/{number}", 1.0, []) for number in range(1000)))
    other = reads(*((f"/{number}", 1.0, []) for number in reversed(range(1000))))
    verdict = compared(kept, other, sample=10.0)
    assert verdict.is_same
    assert 50 < verdict.rows < 200
    assert is_in_sample("anything", 100.0)
    assert not is_in_sample("anything", 0.0)
