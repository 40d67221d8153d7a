"""Commands and answers as bytes: what was sent is read, what is none is told, by whom it was."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.base.errors import Rejected
from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.command_arguments import (
    ArgumentNotJson,
    call_from,
    encode_arguments,
)
from millstream.eventsourcing.command_calls import BadArguments, UnknownCommand, call_of
from millstream.eventsourcing.command_topic import (
    COMMAND_BYTES_MAX,
    ID_LENGTH_MAX,
    UNTOLD,
    Answer,
    BadAnswerRecord,
    BadCommandRecord,
    CommandRefused,
    CommandTooLarge,
    SentCommand,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
    refusal_of,
    told,
)
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.staging import WrongVersion
from millstream.eventsourcing.stored_event import Receipt

RECEIPT = Receipt(topic="t", partition=1, offset=7, stream="s", version=3, seq=9, events=("a", "b"))


@event
class Noted:
    what: str


@dataclass
class Money:
    amount: Decimal
    currency: str


class Diary(Aggregate, events=[Noted]):
    def note(self, what: Any, *more: int, price: "Money | None" = None):  # type: ignore[no-untyped-def]
        yield Noted(str(what))

    def keep(self, at: dt.datetime, id_of: UUID, /, plain=1):  # type: ignore[no-untyped-def]
        yield Noted(str(at))

    def odd(self, unknown: "NotThere"):  # type: ignore[no-untyped-def,name-defined]  # noqa: F821
        yield Noted(str(unknown))


def sent(**more: Any) -> SentCommand:
    return SentCommand(
        **{"id": "x", "aggregate": "Seat", "stream": "Seat:1", "command": "take"} | more
    )


@given(
    st.text(min_size=1, max_size=ID_LENGTH_MAX),
    st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.booleans())),
    st.none() | st.integers(0, 10**9),
    st.none() | st.integers(0, 99),
)
def test_what_was_sent_is_read(
    id: str, given: dict[str, Any], expect: int | None, reply: int | None
) -> None:
    arguments = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in given.items()}
    command = sent(id=id, arguments=arguments, expect=expect, reply=reply, meta={"by": "ada"})
    found = decode_command(encode_command(command))
    assert {name: msgspec.json.decode(raw) for name, raw in found.arguments.items()} == given
    assert (found.id, found.expect, found.reply, found.meta) == (id, expect, reply, {"by": "ada"})


@pytest.mark.parametrize(
    ("value", "id", "reply"),
    [
        (None, None, None),
        (b"", None, None),
        (b"\xff", None, None),
        (b"[]", None, None),
        (b'{"id":"x","reply":2}', "x", 2),
        (b'{"id":7,"reply":"2"}', None, None),
        (b'{"id":"x","aggregate":"A","stream":"s","command":"c","expect":"no"}', "x", None),
        (b'{"id":"","aggregate":"A","stream":"s","command":"c","reply":1}', None, 1),
        (b'{"id":"%s"}' % (b"x" * (ID_LENGTH_MAX + 1)), None, None),
    ],
)
def test_what_is_no_command_says_whose_it_was(
    value: bytes | None, id: str | None, reply: int | None
) -> None:
    with pytest.raises(BadCommandRecord) as caught:
        decode_command(value)
    assert (caught.value.id, caught.value.reply) == (id, reply)


def test_a_command_has_a_largest_size() -> None:
    head = len(encode_command(sent(arguments={"a": msgspec.Raw(b'""')})))
    fitting = msgspec.Raw(b'"' + b"x" * (COMMAND_BYTES_MAX - head) + b'"')
    assert len(encode_command(sent(arguments={"a": fitting}))) == COMMAND_BYTES_MAX
    with pytest.raises(CommandTooLarge):
        encode_command(sent(arguments={"a": msgspec.Raw(b'"x' + bytes(fitting)[1:])}))


def test_an_answer_is_a_receipt() -> None:
    answer = decode_answer(encode_answer(Answer(command="x", receipt=RECEIPT)), place="p")
    assert told(answer, {}) == RECEIPT


def test_a_refusal_is_raised_again_with_its_facts() -> None:
    error = WrongVersion(stream="s", expected=1, found=2)
    value = encode_answer(Answer(command="x", error=refusal_of(error)))
    with pytest.raises(WrongVersion) as caught:
        told(decode_answer(value, place="p"), {"WrongVersion": WrongVersion})
    assert (caught.value.expected, str(caught.value)) == (1, str(error))


def test_a_refusal_of_an_unknown_kind_says_which_it_was() -> None:
    class NotToday(Rejected):
        def __init__(self) -> None:
            super().__init__("not today")
            self.day, self.secret = "Sunday", object()

    value = encode_answer(Answer(command="x", error=refusal_of(NotToday())))
    with pytest.raises(CommandRefused, match=r"^not today$") as caught:
        told(decode_answer(value, place="p"), {})
    assert (caught.value.type, caught.value.facts) == ("NotToday", {"day": "Sunday"})


def test_an_answer_of_another_version_is_no_reason_to_fail_otherwise() -> None:
    error = refusal_of(WrongVersion(stream="s", expected=1, found=2))
    other = msgspec.structs.replace(error, facts={"strange": 1})
    with pytest.raises(CommandRefused, match="is at version 2"):
        told(Answer(command="x", error=other), {"WrongVersion": WrongVersion})


def test_what_is_no_answer_is_told_with_its_place() -> None:
    with pytest.raises(BadAnswerRecord, match=r"replies\[0\]"):
        decode_answer(b"{", place="replies[0]")


def test_what_is_nested_too_deep_is_neither_command_nor_answer() -> None:
    deep = b'{"id":"x","aggregate":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    with pytest.raises(BadCommandRecord):
        decode_command(deep)
    with pytest.raises(BadAnswerRecord):
        decode_answer(deep, place="replies[0]")


def test_a_refusal_that_may_say_something_personal_says_its_kind_alone() -> None:
    told = refusal_of(Rejected("ada@x.org is no member"), is_personal=True)
    assert (told.type, told.reason, told.facts) == ("Rejected", UNTOLD, {})
    wrong = WrongVersion(stream="s", expected=1, found=2)
    assert refusal_of(wrong, is_personal=True) == refusal_of(wrong)


def test_arguments_come_back_as_the_parameters_say() -> None:
    money = Money(Decimal("1.50"), "EUR")
    call = call_of(Diary.__plan__, "note", ("tea", 1, 2), {"price": money})
    back = call_from(Diary, "note", encode_arguments(call))
    assert (back.positional, back.named) == (("tea", 1, 2), {"price": money})
    assert back.encoded() == call.encoded()


def test_times_and_ids_come_back_as_such() -> None:
    at, id = dt.datetime(2026, 11, 18, tzinfo=dt.UTC), UUID(int=7)
    call = call_of(Diary.__plan__, "keep", (at, id), {})
    back = call_from(Diary, "keep", encode_arguments(call))
    assert (back.positional, back.named) == ((at, id), {})


def test_an_annotation_that_nobody_knows_takes_what_comes() -> None:
    back = call_from(Diary, "odd", {"unknown": msgspec.Raw(b"[1]")})
    assert back.positional == ([1],)


@pytest.mark.parametrize(
    ("command", "arguments", "error"),
    [
        ("nota", {}, UnknownCommand),
        ("__init__", {}, UnknownCommand),
        ("on_Noted", {}, UnknownCommand),
        ("note", {}, BadArguments),
        ("note", {"what": b"1", "other": b"1"}, BadArguments),
        ("note", {"what": b"1", "more": b'["x"]'}, BadArguments),
        ("note", {"what": b"1", "price": b'{"amount":"x","currency":"EUR"}'}, BadArguments),
        ("note", {"what": b'"\xff"'}, BadArguments),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    command: str, arguments: dict[str, bytes], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call_from(Diary, command, {name: msgspec.Raw(raw) for name, raw in arguments.items()})


def test_what_json_cannot_say_is_not_sent() -> None:
    with pytest.raises(ArgumentNotJson, match="argument what"):
        encode_arguments(call_of(Diary.__plan__, "note", (object(),), {}))
