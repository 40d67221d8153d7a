import copy
import pickle
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from typing_extensions import TypeAliasType

from millstream.eventsourcing.personal import (
    FORGOTTEN,
    SUBJECT_BYTES_MAX,
    BadPersonalField,
    BadSubject,
    Forgotten,
    Personal,
    PersonalField,
    personal,
    personal_fields,
    subject_in,
    subject_text,
)


@dataclass(frozen=True)
class Address:
    street: str
    town: str


@dataclass(frozen=True)
class Registered:
    user: str
    email: Personal[str]
    address: Personal[Address | None]
    friend: str
    friends_email: Annotated[str, personal(subject="friend")]
    plan: str = "free"


@dataclass(frozen=True)
class Holds:
    address: "list[Contact]"


@dataclass(frozen=True)
class Contact:
    phone: Personal[str]


@dataclass(frozen=True)
class Knows:
    me: str
    others: "list[Knows]"


T = TypeVar("T")
Email = NewType("Email", Personal[str])
WorkEmail = NewType("WorkEmail", Email)
Named = TypeAliasType("Named", Personal[str])


class InTuple(NamedTuple):
    phone: Personal[str]


class InDict(TypedDict):
    phone: Personal[str]


class InStruct(msgspec.Struct):
    phone: Personal[str]


@dataclass(frozen=True)
class InGeneric(Generic[T]):
    phone: Personal[T]


class InBase(list[Personal[str]]):
    pass


Bound = TypeVar("Bound", bound=Personal[str])


def test_a_field_is_of_the_subject_that_its_mark_its_event_or_its_stream_names() -> None:
    by_stream = personal_fields(Registered)
    assert by_stream == (
        PersonalField("email", None),
        PersonalField("address", None),
        PersonalField("friends_email", "friend"),
    )
    assert [field.subject for field in personal_fields(Registered, "user")] == [
        "user",
        "user",
        "friend",
    ]


def test_the_subject_is_what_the_field_says_or_the_id_of_the_stream() -> None:
    data = {"user": "ada", "number": 7}
    assert subject_in(PersonalField("email", "user"), data, "Account:7") == "ada"
    assert subject_in(PersonalField("email", "number"), data, "Account:7") == "7"
    assert subject_in(PersonalField("email", None), data, "Account:a:7") == "a:7"
    assert subject_in(PersonalField("email", None), data, "account") == "account"


def test_an_event_without_personal_fields_has_none_even_if_it_holds_itself() -> None:
    assert personal_fields(Address) == ()
    assert personal_fields(Knows) == ()


@pytest.mark.parametrize(
    ("event", "subject", "reason"),
    [
        (Registered, "usr", "which the event does not have"),
        (Registered, "email", "personal itself"),
        (Holds, None, "mark the whole field"),
    ],
)
def test_a_mark_that_cannot_be_kept_is_refused_when_it_is_declared(
    event: type, subject: str | None, reason: str
) -> None:
    with pytest.raises(BadPersonalField, match=reason):
        personal_fields(event, subject)


@pytest.mark.parametrize("hint", [Email, WorkEmail, Named])
def test_a_mark_under_another_name_is_a_mark(hint: Any) -> None:
    event = make_dataclass("Event", [("x", hint)])
    assert personal_fields(event) == (PersonalField("x", None),)


@pytest.mark.parametrize(
    "hint",
    [
        InTuple,
        InDict,
        InStruct,
        InGeneric[str],
        InBase,
        Bound,
        list[Email],
        dict[str, Named],
        Annotated[Email, "checked"],
        Personal[InTuple],
        Personal[Email],
        InTuple | None,
    ],
    ids=str,
)
def test_a_mark_inside_of_any_type_is_refused(hint: Any) -> None:
    event = make_dataclass("Event", [("x", hint)])
    with pytest.raises(BadPersonalField, match="mark the whole field"):
        personal_fields(event)


@pytest.mark.parametrize("bad", [None, True, 1.5, b"ada", "", "\ud800", ["ada"]])
def test_a_subject_that_is_none_is_refused(bad: object) -> None:
    with pytest.raises(BadSubject):
        subject_text(bad)


def test_a_subject_has_a_length_that_is_bounded() -> None:
    assert subject_text("a" * SUBJECT_BYTES_MAX)
    with pytest.raises(BadSubject, match="1,025 bytes"):
        subject_text("a" * (SUBJECT_BYTES_MAX + 1))


def test_two_spellings_of_a_letter_are_the_same_subject() -> None:
    assert subject_text("Zo\u00eb") == subject_text("Zoe\u0308")
    assert subject_text(UUID(int=7)) == "00000000-0000-0000-0000-000000000007"


def test_what_was_forgotten_is_one_thing_and_false() -> None:
    assert not FORGOTTEN
    assert f"{FORGOTTEN}" == repr(FORGOTTEN) == "(forgotten)"
    assert Forgotten() is FORGOTTEN
    assert copy.deepcopy(FORGOTTEN) is pickle.loads(pickle.dumps(FORGOTTEN)) is FORGOTTEN
