from dataclasses import FrozenInstanceError, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from millstream.base.declared import BadDeclaration
from millstream.eventsourcing.declared_event import event, facts_of
from millstream.eventsourcing.event_types import (
    EventDoesNotFit,
    EventTypes,
    NotAnEvent,
    StoredDataDoesNotFit,
    TimeWithoutZone,
    UnknownEventType,
    UnknownEventVersion,
    UpcastFailed,
)
from millstream.eventsourcing.stored_event import NewEvent, StoredEvent
from millstream.eventsourcing.upcasting import require_steps, upcast

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@event
class Deposited:
    amount: int
    note: str = ""


@event(name="money-withdrawn", version=3)
class Withdrawn:
    cents: int
    currency: str


@upcast(Withdrawn, from_version=1)
def _euros_to_cents(data: dict[str, Any]) -> dict[str, Any]:
    return {"cents": data["amount"] * 100}


@upcast(Withdrawn, from_version=2)
def _currency(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "currency": "EUR"}


def stored(type: str, data: bytes, type_version: int = 1) -> StoredEvent:
    return StoredEvent(
        seq=9,
        stream="Account:alice",
        version=4,
        type=type,
        type_version=type_version,
        id="e-4",
        at=NOON,
        data=msgspec.Raw(data),
    )


def written(types: EventTypes, found: object) -> tuple[NewEvent, Any]:
    new, (read, _) = types.encode(found, stream="Account:alice", event_id="e-1")
    return new, read


def test_an_event_is_a_frozen_dataclass_with_a_neutral_name() -> None:
    facts = facts_of(Deposited)
    assert facts is not None
    assert (facts.name, facts.version) == ("Deposited", 1)
    with pytest.raises(FrozenInstanceError):
        Deposited(5).amount = 6  # type: ignore[misc]
    new, read = written(EventTypes([Deposited]), Deposited(5))
    assert (new.type, new.type_version, new.data) == (
        "Deposited",
        1,
        b'{"amount":5,"note":""}',
    )
    assert read == Deposited(5)


def test_a_class_that_inherits_from_an_event_is_none_by_itself() -> None:
    class Special(Deposited):
        pass

    assert facts_of(Special) is None


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


@event
class Everything:
    at: datetime
    day: date
    price: Decimal
    key: UUID
    colour: Colour
    lines: list[Line]
    seen: frozenset[str]
    by_name: dict[str, int]
    pair: tuple[int, str]
    blob: bytes
    maybe: int | None


def test_types_of_all_kinds_come_back() -> None:
    found = Everything(
        at=NOON,
        day=date(2026, 1, 2),
        price=Decimal("1.10"),
        key=UUID(int=7),
        colour=Colour.RED,
        lines=[Line("tea", Decimal(3))],
        seen=frozenset({"x"}),
        by_name={"ä": 1},
        pair=(1, "b"),
        blob=b"\x00\xff",
        maybe=None,
    )
    types = EventTypes([Everything])
    new, read = written(types, found)
    assert read == found
    assert types.decode(stored("Everything", new.data)) == found


@pytest.mark.parametrize(
    "found",
    [Deposited("five"), Deposited(5, note="\ud800"), Deposited(object())],  # type: ignore[arg-type]
)
def test_what_could_not_be_read_again_is_not_written(found: Deposited) -> None:
    with pytest.raises(EventDoesNotFit, match="an event Deposited was not stored"):
        written(EventTypes([Deposited]), found)


def test_not_a_number_is_not_written_where_a_number_is_declared() -> None:
    @event
    class Measured:
        value: float

    with pytest.raises(EventDoesNotFit):
        written(EventTypes([Measured]), Measured(float("nan")))


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(NotAnEvent, match="a str is no event"):
        written(EventTypes([Deposited]), "text")


def test_an_unknown_type_is_told_with_its_place() -> None:
    with pytest.raises(UnknownEventType, match="stream Account:alice, version 4") as caught:
        EventTypes([Deposited]).decode(stored("Frozen", b"{}"))
    assert caught.value.type == "Frozen"
    assert "Run the version of the program that does" in str(caught.value)


def test_a_newer_version_than_known_is_told() -> None:
    with pytest.raises(UnknownEventVersion, match="Run a newer version of the program") as caught:
        EventTypes([Deposited]).decode(stored("Deposited", b'{"amount":5}', 2))
    assert (caught.value.type_version, caught.value.known) == (2, 1)


@pytest.mark.parametrize("data", [b"{}", b'{"amount":"5"}', b"[]"])
def test_stored_data_that_does_not_fit_is_told(data: bytes) -> None:
    with pytest.raises(StoredDataDoesNotFit, match=r"Account:alice, version 4.*@upcast"):
        EventTypes([Deposited]).decode(stored("Deposited", data))


def test_fields_that_are_not_declared_any_more_are_passed_over() -> None:
    found = EventTypes([Deposited]).decode(stored("Deposited", b'{"amount":5,"gone":true}'))
    assert found == Deposited(5)


def test_old_versions_are_lifted_step_by_step() -> None:
    types = EventTypes([Withdrawn])
    name = "money-withdrawn"
    assert types.decode(stored(name, b'{"amount":5}', 1)) == Withdrawn(500, "EUR")
    assert types.decode(stored(name, b'{"cents":7}', 2)) == Withdrawn(7, "EUR")
    newest = stored(name, b'{"cents":7,"currency":"CHF"}', 3)
    assert types.decode(newest) == Withdrawn(7, "CHF")


def test_an_upcast_that_fails_is_told_with_its_place() -> None:
    old = stored("money-withdrawn", b"{}", 1)
    with pytest.raises(UpcastFailed, match="from version 1 failed: KeyError: 'amount'"):
        EventTypes([Withdrawn]).decode(old)


def test_an_upcast_gives_a_dict() -> None:
    @event(version=2)
    class Moved:
        to: str

    upcast(Moved, from_version=1)(lambda data: [data])  # type: ignore[type-var]
    with pytest.raises(UpcastFailed, match="and not a dict"):
        EventTypes([Moved]).decode(stored("Moved", b"{}", 1))


def test_a_missing_step_is_an_error_at_registration() -> None:
    @event(version=3)
    class Moved:
        to: str

    upcast(Moved, from_version=2)(lambda data: data)
    with pytest.raises(BadDeclaration, match="no @upcast from version 1"):
        require_steps([Moved])


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_step_is_from_a_version_before(version: int) -> None:
    with pytest.raises(BadDeclaration, match="from_version="):
        upcast(Withdrawn, from_version=version)


def test_two_steps_from_one_version_are_refused() -> None:
    with pytest.raises(BadDeclaration, match="already"):
        upcast(Withdrawn, from_version=1)(lambda data: data)


def test_two_events_of_one_name_are_refused() -> None:
    @event(name="Deposited")
    class Other:
        pass

    with pytest.raises(BadDeclaration, match="two events with the name Deposited"):
        EventTypes([Deposited, Other])


@pytest.mark.parametrize("name", ["", "$own", "a b", "é", "x" * 101])
def test_names_of_events_are_plain(name: str) -> None:
    with pytest.raises(BadDeclaration, match="a name has letters"):
        event(name=name)(type("Any", (), {}))


@event
class Booked:
    at: datetime
    between: list[datetime] = field(default_factory=list)
    named: dict[str, datetime] = field(default_factory=dict)


NAIVE = datetime(2026, 11, 18, 12)


@pytest.mark.parametrize(
    ("found", "place"),
    [
        (Booked(NAIVE), "at"),
        (Booked(NOON, [NOON, NAIVE]), "between"),
        (Booked(NOON, named={"end": NAIVE}), "named.end"),
    ],
)
def test_a_time_without_a_zone_is_not_stored(found: Booked, place: str) -> None:
    types = EventTypes([Booked])
    with pytest.raises(TimeWithoutZone, match=f"its {place} is a time without a zone"):
        types.encode(found, stream="A", event_id="1")
    types.encode(Booked(NOON, [NOON], {"end": NOON}), stream="A", event_id="1")
