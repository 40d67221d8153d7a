"""The records of `_captures` are folded to what the last of them said."""

import json
from typing import Any

import pytest

from millstream.base.schema import DecimalOf, ListOf, Scalar
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.definition import CaptureDefinition
from millstream.capture.position_record import (
    ALL_TABLES,
    CaptureBook,
    Control,
    DamagedCaptureRecord,
    Note,
    Position,
    control_note,
    definition_note,
    forgetting_notes,
    is_asked_anew,
    load_note,
    position_note,
    schema_note,
    status_note,
    unwanted_notes,
)
from tests.support.scripted_source import table_of

DEFINITION = CaptureDefinition(name="shop", url="sqlite:///shop.db", tables=("orders",))
ORDERS = table_of("orders")
ODD = CapturedTable(
    name='public."Odd"',
    topic="shop._Odd_",
    key=("id", "Id"),
    version=2,
    columns=(
        CapturedColumn(
            name="id", database_type="numeric(10,2)", type=DecimalOf(10, 2), is_nullable=False
        ),
        CapturedColumn(name="Id", database_type="text[]", type=ListOf(Scalar.STRING, False)),
    ),
)
ALL: list[Note] = [
    definition_note(DEFINITION),
    control_note("shop", Control(is_paused=True, reloads={"public.orders": "r1"})),
    position_note("shop", Position(resume="0/2", commit="0/1", at_ms=5, reloads={"a": "b"})),
    schema_note("shop", ORDERS),
    schema_note("shop", ODD),
    load_note("shop", "public.orders", '{"phase":"done"}'),
    status_note("shop", {"state": "streaming"}),
]


def folded(*notes: Note) -> CaptureBook:
    book = CaptureBook()
    for key, value in notes:
        book.apply(its_topic(key), key, value)
    return book


def its_topic(key: bytes) -> str:
    kind, name, *_ = json.loads(key)
    return "_captures" if kind in ("definition", "control") else f"_captures.{name}"


def test_everything_that_is_kept_is_read_again() -> None:
    found = folded(*ALL).of("shop")
    assert found.definition == DEFINITION
    assert found.control == Control(is_paused=True, reloads={"public.orders": "r1"})
    assert found.position == Position(resume="0/2", commit="0/1", at_ms=5, reloads={"a": "b"})
    assert found.tables == {"public.orders": ORDERS, 'public."Odd"': ODD}
    assert found.loads == {"public.orders": '{"phase":"done"}'}
    assert found.status == {"state": "streaming"}


def test_the_last_record_of_a_key_counts() -> None:
    notes = [position_note("shop", Position(resume=f"0/{number}")) for number in range(3)]
    position = folded(*notes).of("shop").position
    assert position is not None
    assert position.resume == "0/2"


def test_the_newest_version_of_a_table_counts() -> None:
    newer = table_of("orders", id=Scalar.BIGINT)
    notes = [schema_note("shop", replace_version(newer, number)) for number in (10, 9, 2)]
    assert folded(*notes).of("shop").tables["public.orders"].version == 10


def replace_version(table: CapturedTable, version: int) -> CapturedTable:
    facts: dict[str, Any] = {name: getattr(table, name) for name in table.__slots__}
    return CapturedTable(**(facts | {"version": version}))


def test_captures_do_not_know_one_another() -> None:
    book = folded(*ALL, position_note("other", Position(resume="9/9")))
    assert book.of("shop").position != book.of("other").position
    assert [name for name, _ in book.defined()] == ["shop"]


def test_nothing_is_left_of_a_capture_that_was_forgotten() -> None:
    book = folded(*ALL)
    for key, value in [*forgetting_notes("shop", book.of("shop")), *unwanted_notes("shop")]:
        assert value is None
        book.apply(its_topic(key), key, value)
    found = book.of("shop")
    assert (found.definition, found.position, found.schemas, found.loads, found.status) == (
        None,
        None,
        {},
        {},
        None,
    )
    assert found.control == Control()


def test_a_kind_of_a_newer_version_is_passed_over() -> None:
    assert folded((b'["colour","shop"]', b'"blue"')).of("shop").definition is None


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("_captures", b"x", b"{}"),
        ("_captures.shop", b'["position","shop"]', b"{}"),
        ("_captures", b'["definition","shop"]', b"no JSON"),
    ],
)
def test_a_damaged_record_is_named(topic: str, key: bytes, value: bytes) -> None:
    with pytest.raises(DamagedCaptureRecord) as found:
        CaptureBook().apply(topic, key, value)
    assert found.value.key == key
    assert str(found.value).startswith(f"{topic}: ")


@pytest.mark.parametrize("note", ALL, ids=lambda note: json.loads(note[0])[0])
def test_a_record_counts_in_the_topic_of_its_kind_only(note: Note) -> None:
    """What a run did is said by the run alone, and what is wanted not by the run."""
    for topic in {"_captures", "_captures.shop", "_captures.other"} - {its_topic(note[0])}:
        book = CaptureBook()
        book.apply(topic, *note)
        assert book.captures == {}


def test_a_request_to_reload_all_is_taken_up_once() -> None:
    asked = Control(reloads={ALL_TABLES: "r1"})
    assert is_asked_anew(asked, None)
    assert is_asked_anew(asked, Position(resume="", reloads={ALL_TABLES: "r0"}))
    assert not is_asked_anew(asked, Position(resume="", reloads={ALL_TABLES: "r1"}))
    assert not is_asked_anew(Control(), Position(resume=""))


def test_a_definition_is_of_the_capture_that_its_key_names() -> None:
    """Its name is in slots and topics: those of another capture are not to be had by it."""
    shop = CaptureDefinition(name="shop", url="postgresql://db/shop", tables=("orders",))
    (_, value), book = definition_note(shop), CaptureBook()
    book.apply("_captures", b'["definition","other"]', value)
    found = book.of("other").definition
    assert found is not None
    assert (found.name, found.prefix) == ("other", "other")
