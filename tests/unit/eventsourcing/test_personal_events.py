"""Events with personal fields on their way to the store and back."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

from millstream.base.declared import BadDeclaration
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.event_types import EventDoesNotFit, EventTypes
from millstream.eventsourcing.key_book import SubjectForgotten
from millstream.eventsourcing.personal import FORGOTTEN, BadPersonalField, Personal
from millstream.eventsourcing.sealed_events import KeyedSealing
from millstream.eventsourcing.sealing import NotSealable
from millstream.eventsourcing.stored_event import NewEvent, StoredEvent
from millstream.eventsourcing.upcasting import upcast
from tests.support.plain_keys import PlainKeys


@dataclass(frozen=True)
class Address:
    street: str
    town: str


@event(subject="user")
class Registered:
    user: str
    email: Personal[str]
    born: Personal[date | None] = None
    address: Personal[Address | None] = None
    plan: str = "free"


@event(version=2)
class Renamed:
    full_name: Personal[str]


@upcast(Renamed, from_version=1)
def one_name(data: dict[str, Any]) -> dict[str, Any]:
    return {"full_name": data["name"]}


@event(name="Renamed")
class OldRenamed:
    name: Personal[str]


ADA = Registered("ada", "ada@x.org", date(1815, 12, 10), Address("St James's Sq", "London"))
STREAM, EVENT = "User:ada", "e1"


@pytest.fixture
def keys() -> PlainKeys:
    return PlainKeys()


def types(keys: PlainKeys, *kinds: type) -> EventTypes:
    return EventTypes(kinds or (Registered, Renamed), sealing=KeyedSealing(keys))


def stored(new: NewEvent) -> StoredEvent:
    return StoredEvent(
        seq=1,
        stream=STREAM,
        version=1,
        type=new.type,
        type_version=new.type_version,
        id=new.id or "",
        at=datetime(2026, 11, 18, tzinfo=UTC),
        data=msgspec.Raw(new.data),
        tags=new.tags,
    )


def test_an_event_is_stored_sealed_and_read_as_it_was(keys: PlainKeys) -> None:
    new, (read, used) = types(keys).encode(ADA, stream=STREAM, event_id=EVENT)
    assert read == ADA
    assert used == {keys.key_for("ada").id}
    assert new.tags == (f"personal:{keys.hash_of('ada')}",)
    data = msgspec.json.decode(new.data)
    assert (data["user"], data["plan"]) == ("ada", "free")
    assert all(data[name].startswith("sealed:1:") for name in ("email", "born", "address"))
    assert types(keys).opened(stored(new)) == (ADA, used)


def test_what_was_forgotten_stands_where_it_was_whatever_its_type(keys: PlainKeys) -> None:
    new, _ = types(keys).encode(ADA, stream=STREAM, event_id=EVENT)
    keys.forget("ada")
    found, used = types(keys).opened(stored(new))
    forgotten: Any = FORGOTTEN
    assert found == Registered("ada", forgotten, forgotten, forgotten, "free")
    assert not used


def test_a_value_is_opened_before_a_step_renames_its_field(keys: PlainKeys) -> None:
    old, _ = types(keys, OldRenamed).encode(OldRenamed("Ada L."), stream=STREAM, event_id=EVENT)
    assert types(keys).decode(stored(old)) == Renamed("Ada L.")
    keys.forget("ada")
    assert types(keys).decode(stored(old)).full_name is FORGOTTEN


def test_nothing_personal_is_stored_for_who_was_forgotten(keys: PlainKeys) -> None:
    keys.forget("ada")
    with pytest.raises(SubjectForgotten):
        types(keys).encode(ADA, stream=STREAM, event_id=EVENT)


def test_without_a_keyring_nothing_personal_is_stored_at_all() -> None:
    with pytest.raises(BadDeclaration, match=r"Registered has personal fields.*no keyring"):
        EventTypes([Registered]).encode(ADA, stream=STREAM, event_id=EVENT)


def test_what_does_not_fit_its_type_is_refused_before_it_is_sealed(keys: PlainKeys) -> None:
    wrong: Any = 7
    with pytest.raises(EventDoesNotFit):
        types(keys).encode(Registered("ada", wrong), stream=STREAM, event_id=EVENT)
    forgotten: Any = FORGOTTEN
    with pytest.raises(EventDoesNotFit, match="Forgotten"):
        types(keys).encode(Registered("ada", forgotten), stream=STREAM, event_id=EVENT)


def test_a_sealed_value_is_not_put_where_it_could_not_be_opened(keys: PlainKeys) -> None:
    new, _ = types(keys).encode(ADA, stream=STREAM, event_id=EVENT)
    text = msgspec.json.decode(new.data)["email"]
    with pytest.raises(NotSealable, match="field plan"):
        types(keys).encode(Registered("ada", "a@x", plan=text), stream=STREAM, event_id=EVENT)


@event
class Noted:
    texts: list[str]


@pytest.mark.parametrize("text", ["sealed:1:boo", "sealed:1:"])
def test_what_looks_sealed_is_not_stored_where_nothing_is_personal(text: str) -> None:
    plain = EventTypes([Noted])
    with pytest.raises(NotSealable, match="field texts"):
        plain.encode(Noted(["hi", text]), stream=STREAM, event_id=EVENT)
    plain.encode(Noted([f"see {text}"]), stream=STREAM, event_id=EVENT)


def test_a_bad_mark_is_refused_when_an_aggregate_is_declared() -> None:
    @event(subject="email")
    class Bad:
        email: Personal[str]

    with pytest.raises(BadPersonalField):
        EventTypes([Bad])
