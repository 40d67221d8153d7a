"""Reactions: what an event asks for has ids that come of the event, and says why it was asked."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from millstream.base.declared import BadDeclaration
from millstream.eventsourcing.command_topic import SentCommand
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.reaction import (
    COMMANDS_MAX,
    BadReaction,
    Cause,
    cause_of,
    commands_of,
    reaction_of,
)
from millstream.eventsourcing.stored_event import StoredEvent


@event
class Held:
    customer: str


def asked(command: str = "charge", id: str = "", **meta: str) -> SentCommand:
    return SentCommand(
        id=id, aggregate="Wallet", stream="Wallet:ada", command=command, meta=dict(meta)
    )


CAUSE = cause_of(
    StoredEvent(
        seq=9,
        stream="Seat:row:7",
        version=2,
        type="Held",
        type_version=1,
        id="e-1",
        at=datetime(2026, 11, 18, tzinfo=UTC),
        data=msgspec.Raw(b"{}"),
        meta={"by": "ada", "correlation": "trip"},
    )
)


def test_the_ids_come_of_the_event() -> None:
    def pay(held: Held, cause: Cause) -> Iterator[SentCommand]:
        assert (held.customer, cause.aggregate_id) == ("ada", "row:7")
        yield asked()
        yield asked(id="my own")

    reaction = reaction_of(pay, [Held])
    first, second = commands_of(reaction, Held("ada"), CAUSE)
    assert (first.id, second.id) == ("pay:e-1:0", "my own")
    assert commands_of(reaction, Held("ada"), CAUSE) == [first, second]


def test_commands_say_why_they_are_asked_for() -> None:
    reaction = reaction_of(lambda held: [asked(), asked(by="bob", causation="c")], [Held], "pay")
    first, second = commands_of(reaction, Held("ada"), CAUSE)
    assert first.meta == {"by": "reaction pay", "causation": "e-1", "correlation": "trip"}
    assert second.meta == {"by": "bob", "causation": "c", "correlation": "trip"}


def test_a_reaction_may_ask_for_nothing() -> None:
    assert commands_of(reaction_of(lambda held: None, [Held], "pay"), Held("ada"), CAUSE) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([1], "it yields 1: yield commands"),
        ([asked()] * (COMMANDS_MAX + 1), "1,001 commands"),
        ([asked(id="x" * 1_000)], "letters"),
    ],
)
def test_what_it_cannot_ask_for_is_refused(found: list[Any], told: str) -> None:
    with pytest.raises(BadReaction, match=told):
        commands_of(reaction_of(lambda held: found, [Held], "pay"), Held("ada"), CAUSE)


@pytest.mark.parametrize(
    ("function", "kinds", "told"),
    [
        (lambda: None, [Held], "function of"),
        (lambda a, b, c: None, [Held], "function of"),
        (lambda a: None, [], "name the events"),
        (lambda a: None, [str], "is no event"),
        (lambda a: None, ["Held"], "is no event"),
    ],
)
def test_a_reaction_that_could_not_work_is_refused_where_it_is_declared(
    function: Callable[..., Any], kinds: list[Any], told: str
) -> None:
    with pytest.raises(BadDeclaration, match=told):
        reaction_of(function, kinds, "pay")
