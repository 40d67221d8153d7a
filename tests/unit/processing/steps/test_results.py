"""What the changes of a job come to, batch by batch."""

import pytest

from millstream.processing.steps.results import BadChanges, Results, Row


def written(*batches: list[Row], key: tuple[str, ...] = ("id",)) -> list[Row]:
    results = Results(key)
    for number, changes in enumerate(batches):
        results.write(number, changes)
    return results.rows()


def test_the_last_row_of_a_key_counts() -> None:
    rows = written([{"id": 1, "n": 1}, {"id": 2, "n": 1}], [{"id": 1, "n": 2}])
    assert rows == [{"id": 1, "n": 2}, {"id": 2, "n": 1}]


def test_the_last_row_of_a_key_in_a_batch_counts_as_in_a_view() -> None:
    assert written([{"id": 1, "n": 1}, {"id": 1, "n": 2}]) == [{"id": 1, "n": 2}]


def test_a_part_of_a_key_may_be_null_as_in_a_view() -> None:
    rows: list[Row] = [{"id": 1, "other": None, "n": 1}, {"id": 1, "other": 2, "n": 2}]
    assert written(rows, key=("id", "other")) == rows


def test_a_delete_needs_only_the_key() -> None:
    assert written([{"id": 1, "n": 1}], [{"id": 1, "n": None, "_change": "delete"}]) == []


def test_a_delete_of_nothing_is_none() -> None:
    assert written([{"id": 1, "_change": "delete"}]) == []


def test_a_row_that_is_taken_back_makes_room_for_another() -> None:
    first = [{"id": 1, "n": 1, "_change": "insert"}]
    second = [{"id": 1, "n": 2, "_change": "insert"}, {"id": 1, "n": 1, "_change": "retract"}]
    assert written(first, second) == [{"id": 1, "n": 2}]


def test_the_order_of_changes_is_theirs_not_that_of_rows() -> None:
    changes: list[Row] = [
        {"id": 1, "n": 2, "_change": "upsert", "_order": 8},
        {"id": 1, "n": None, "_change": "delete", "_order": 7},
    ]
    assert written(changes) == [{"id": 1, "n": 2}]


def test_without_a_key_every_row_counts() -> None:
    assert written([{"n": 1}, {"n": 1}], [{"n": 1, "_change": "retract"}], key=()) == [{"n": 1}]


def test_a_key_may_be_a_window() -> None:
    window = {"start": 1, "end": 2}
    rows = written([{"w": window, "n": 1}], [{"w": dict(window), "n": 2}], key=("w",))
    assert rows == [{"w": window, "n": 2}]


def test_a_batch_that_comes_again_changes_nothing() -> None:
    results = Results()
    assert results.write(0, [{"n": 1}])
    assert not results.write(0, [{"n": 1}])
    assert (results.rows(), results.changes) == ([{"n": 1}], [{"n": 1}])


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        (
            [[{"id": 1, "n": n, "_change": "insert"} for n in (1, 2)]],
            "two rows of one batch have the key {'id': 1}",
        ),
        ([[{"id": None}]], "the key id is null"),
        ([[{"n": 1}]], "the key id is no column"),
        ([[{"id": 1, "_change": "gone"}]], "one of upsert, delete, insert, retract"),
        ([[{"id": 1, "_change": "retract"}]], "takes back a row that is not there"),
        ([[{"id": 1, "n": 1}], [{"id": 1, "n": 2, "_change": "insert"}]], "has not taken back"),
    ],
)
def test_changes_without_a_meaning_are_refused(batches: list[list[Row]], told: str) -> None:
    with pytest.raises(BadChanges, match=told.replace("{", r"\{")):
        written(*batches)


def test_without_a_key_nothing_can_be_deleted() -> None:
    with pytest.raises(BadChanges, match="without a key"):
        written([{"n": 1, "_change": "delete"}], key=())
