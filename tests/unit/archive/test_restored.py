"""What is in a topic is held against what a restore would have written there."""

import pytest

from millstream.archive.restored import RestoredRecord, first_difference


def record(number: int) -> RestoredRecord:
    return RestoredRecord(1_000 + number, b"k%d" % number, b"v%d" % number, (("h", b"1"),))


ARCHIVED = [record(number) for number in range(5)]


def difference(
    found: list[tuple[int, RestoredRecord]], *, end: int, may_have_holes: bool = False
) -> str | None:
    return first_difference(iter(ARCHIVED), found, end=end, may_have_holes=may_have_holes)


@pytest.mark.parametrize("end", range(6))
def test_the_beginning_of_the_archive_is_no_difference(end: int) -> None:
    assert difference(list(enumerate(ARCHIVED[:end])), end=end) is None


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize(
    "change",
    [{"time_ms": 9}, {"key": None}, {"value": b""}, {"headers": ()}],
    ids=["time", "key", "value", "headers"],
)
def test_one_other_record_anywhere_is_found(at: int, change: dict[str, object]) -> None:
    found = ARCHIVED[:4]
    found[at] = found[at]._replace(**change)  # type: ignore[arg-type]  # one field of any type
    assert difference(list(enumerate(found)), end=4) == f"offset {at} has another one"


def test_more_than_the_archive_has_is_found() -> None:
    found = list(enumerate([*ARCHIVED, record(5)]))
    assert difference(found, end=6) == "it has 6, the archive fewer"


def test_a_hole_is_only_for_a_compacted_topic() -> None:
    found = [(0, record(0)), (3, record(3))]
    assert difference(found, end=4) == "offset 1 has none"
    assert difference(found, end=4, may_have_holes=True) is None
    moved = [(0, record(0)), (3, record(1))]
    assert difference(moved, end=4, may_have_holes=True) == "offset 3 has another one"


@pytest.mark.parametrize("may_have_holes", [True, False])
def test_the_last_record_must_be_there(may_have_holes: bool) -> None:
    found = [(0, record(0))]
    assert difference(found, end=2, may_have_holes=may_have_holes) == "offset 1 has none"


def test_a_time_that_no_client_can_send_is_no_difference() -> None:
    due = iter([record(0)._replace(time_ms=None)])
    found = [(0, record(0)._replace(time_ms=1))]
    assert first_difference(due, found, end=1, may_have_holes=False) is None
