"""Versions of tables, by their shape."""

from dataclasses import replace

from millstream.base.schema import Scalar
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.table_versions import TableVersions


def table(*columns: str, name: str = "public.orders") -> CapturedTable:
    described = tuple(
        CapturedColumn(name=column, database_type="integer", type=Scalar.INT) for column in columns
    )
    return CapturedTable(name=name, topic="orders", columns=described, key=("id",))


def test_another_shape_is_the_next_version() -> None:
    versions = TableVersions()
    assert versions.of(table("id")).version == 1
    assert versions.of(table("id", "item")).version == 2
    assert versions.of(replace(table("id"), key=())).version == 3
    assert versions.of(table("id", name="public.other")).version == 1


def test_a_shape_that_was_there_keeps_its_number() -> None:
    versions = TableVersions()
    first = versions.of(table("id"))
    versions.of(table("id", "item"))
    assert versions.of(table("id")) is first


def test_numbers_go_on_after_those_of_former_runs() -> None:
    former = TableVersions()
    known = [former.of(table("id")), former.of(table("id", "item"))]
    later = TableVersions(known)
    assert later.of(table("id", "item")).version == 2
    assert later.of(table("id", "note")).version == 3
