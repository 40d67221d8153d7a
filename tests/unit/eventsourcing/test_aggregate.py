from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from millstream.base.declared import BadDeclaration
from millstream.base.errors import Rejected
from millstream.eventsourcing import command_calls
from millstream.eventsourcing.aggregate import Aggregate, FoldFailed, StateIsReadOnly
from millstream.eventsourcing.command_arguments import call_from, encode_arguments
from millstream.eventsourcing.command_calls import (
    BadArguments,
    NotItsEvent,
    TooManyEvents,
    UnknownCommand,
    call_of,
    run_command,
)
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.event_types import EventTypes, NotAnEvent


@event
class Added:
    sku: str


@event
class Noted:
    text: str


@event
class Strange:
    pass


class Cart(Aggregate, events=[Noted]):
    lines: list[str] = []  # noqa: RUF012 - the initial state
    limit = 3

    def add(self, *skus: str) -> Iterator[object]:
        for sku in skus:
            if len(self.lines) >= self.limit:
                raise Rejected("the cart is full")
            yield Added(sku)

    def note(self, text: str = "") -> Iterator[object]:
        yield Noted(text)

    def look(self) -> Iterator[object]:
        yield from ()

    def cheat(self) -> Iterator[object]:
        self.limit = 100
        yield Noted("")

    def babble(self) -> Iterator[object]:
        while True:
            yield Noted("")

    def odd(self, found: Any) -> Iterator[object]:
        yield found

    def count(self) -> int:
        return len(self.lines)

    def on_Added(self, found: Added) -> None:  # noqa: N802 - the name of the event
        self.lines.append(found.sku)


def run(cart: Cart, command: str, *arguments: Any, **named: Any) -> list[str]:
    call = call_of(cart.__plan__, command, arguments, named)
    types = EventTypes(cart.__plan__.kinds)
    numbers = iter(range(1_000_000))
    made = run_command(cart, call, types, stream="Cart:7", new_id=lambda: f"e-{next(numbers)}")
    return [new.type for new in made]


def test_a_command_sees_its_own_effects() -> None:
    cart = Cart("7")
    assert run(cart, "add", "tea", "milk") == ["Added", "Added"]
    assert (cart.lines, cart.version, cart.count()) == (["tea", "milk"], 2, 2)
    with pytest.raises(Rejected, match="full"):
        run(cart, "add", "sugar", "cream")


def test_initial_state_is_copied_for_each() -> None:
    run(Cart("7"), "add", "tea")
    assert Cart("8").lines == []
    assert Cart.lines == []


def test_an_event_without_a_fold_is_only_counted() -> None:
    cart = Cart("7")
    assert run(cart, "note", "hello") == ["Noted"]
    assert (cart.version, cart.lines) == (1, [])


def test_a_command_that_yields_nothing_changes_nothing() -> None:
    cart = Cart("7")
    assert run(cart, "look") == []
    assert cart == Cart("7")


@pytest.mark.parametrize("found", [None, 5, "Added", Added, {"sku": "tea"}])
def test_a_command_yields_events_only(found: object) -> None:
    with pytest.raises(NotAnEvent, match="a command yields instances of classes"):
        run(Cart("7"), "odd", found)


def test_an_event_that_the_aggregate_does_not_know_is_refused() -> None:
    with pytest.raises(NotItsEvent, match=r"on_Strange.*events=\[Strange\]"):
        run(Cart("7"), "odd", Strange())


def test_state_is_changed_in_folds_only() -> None:
    with pytest.raises(StateIsReadOnly, match=r"Cart\.limit cannot be set here"):
        run(Cart("7"), "cheat")


def test_a_command_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_calls, "EVENTS_PER_COMMAND_MAX", 10)
    with pytest.raises(TooManyEvents, match="more than 10 events"):
        run(Cart("7"), "babble")


def test_a_fold_that_raises_is_told_with_its_place() -> None:
    class Broken(Aggregate):
        def add(self) -> Iterator[object]:
            yield Added("tea")

        def on_Added(self, found: Added) -> None:  # noqa: N802 - the name of the event
            raise KeyError(found.sku)

    broken = Broken("1")
    call = call_of(broken.__plan__, "add", (), {})
    types = EventTypes(broken.__plan__.kinds)
    with pytest.raises(FoldFailed, match="version 1: on_Added failed: KeyError") as caught:
        list(run_command(broken, call, types, stream="Broken:1", new_id=lambda: "e"))
    assert (caught.value.stream, caught.value.version) == ("Broken:1", 1)


def test_an_unknown_command_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UnknownCommand, match="Did you mean add"):
        call_of(Cart.__plan__, "ad", (), {})
    with pytest.raises(UnknownCommand, match="A command is a public method that yields"):
        call_of(Cart.__plan__, "count", (), {})


def test_arguments_that_do_not_fit_are_told() -> None:
    with pytest.raises(BadArguments, match=r"Cart\.note: got an unexpected keyword"):
        call_of(Cart.__plan__, "note", (), {"txt": ""})


def test_a_call_is_the_same_however_its_arguments_are_given() -> None:
    one, other = (
        call_of(Cart.__plan__, "note", ("hi",), {}),
        call_of(Cart.__plan__, "note", (), {"text": "hi"}),
    )
    assert one.encoded() == other.encoded()
    assert one.encoded() != call_of(Cart.__plan__, "note", ("ho",), {}).encoded()


class Shop(Aggregate, events=[Noted]):
    def order(
        self, sku: str, count: int = 1, on: date = date(2026, 11, 18), odd: object = object
    ) -> Iterator[object]:
        yield Noted(f"{sku} {count} {on} {odd}")


def order(*arguments: Any, **named: Any) -> bytes:
    return call_of(Shop.__plan__, "order", arguments, named).encoded()


def test_a_call_is_the_same_whether_defaults_are_given_or_not() -> None:
    short = order("tea")
    assert order("tea", 1) == order("tea", count=1, on=date(2026, 11, 18)) == short
    assert order("tea", 1, date(2026, 11, 18), object) == short
    assert len({short, order("tea", 2), order("tea", True), order("tea", odd=1)}) == 4


def test_a_call_over_the_topic_is_the_same_as_a_direct_one() -> None:
    given = call_of(Shop.__plan__, "order", ("tea", 1), {"on": date(2026, 11, 18)})
    sent = encode_arguments(given)
    assert call_from(Shop, "order", sent).encoded() == given.encoded() == order("tea")


def test_events_are_found_in_the_scope_of_the_aggregate() -> None:
    @event
    class Local:
        pass

    class Here(Aggregate):
        @event
        class Inner:
            pass

        def on_Local(self, found: Local) -> None:  # noqa: N802 - the name of the event
            pass

        def on_Inner(self, found: "Here.Inner") -> None:  # noqa: N802 - the same
            pass

        def on_Added(self, found: Added) -> None:  # noqa: N802 - the same
            pass

    assert set(Here.__plan__.kinds) == {Local, Here.Inner, Added}


def test_an_aggregate_inherits_commands_folds_and_state() -> None:
    class Bigger(Cart):
        limit = 100

    cart = Bigger("1")
    run(cart, "add", *"abcde")
    assert len(cart.lines) == 5


def test_a_fold_of_an_event_that_nobody_declared_is_refused() -> None:
    with pytest.raises(BadDeclaration, match="there is no event class Missing"):

        class Bad(Aggregate):
            def on_Missing(self, found: object) -> None:  # noqa: N802 - the name of the event
                pass


def test_a_fold_does_not_yield() -> None:
    with pytest.raises(BadDeclaration, match="a fold only changes the state"):

        class Bad(Aggregate):
            def on_Added(self, found: object) -> Iterator[None]:  # noqa: N802 - the same
                yield


@pytest.mark.parametrize("word", ["id", "expect", "wait", "by", "why", "causation", "correlation"])
def test_words_of_the_call_are_no_parameters_of_commands(word: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def pay(self, {word}):\n    yield", space)
    with pytest.raises(BadDeclaration, match="are words of every call"):
        type("Bad", (Aggregate,), {"pay": space["pay"]})


def test_what_every_handle_has_is_no_command() -> None:
    with pytest.raises(BadDeclaration, match="what every handle has"):

        class Bad(Aggregate):
            def history(self) -> Iterator[object]:
                yield Added("tea")


def test_commands_do_not_wait_for_others() -> None:
    with pytest.raises(BadDeclaration, match="is async"):

        class Bad(Aggregate):
            async def pay(self) -> None:
                pass


def test_an_aggregate_has_no_constructor_and_no_names_of_ours() -> None:
    with pytest.raises(BadDeclaration, match="has an __init__"):
        type("Bad", (Aggregate,), {"__init__": lambda self: None})
    with pytest.raises(BadDeclaration, match="`version` is every aggregate's own"):
        type("Bad", (Aggregate,), {"version": 0})
    with pytest.raises(BadDeclaration, match="a name has letters"):

        class Named(Aggregate, name="a:b"):
            pass


def test_an_aggregate_tells_what_it_is() -> None:
    cart = Cart("7")
    run(cart, "add", "tea")
    assert repr(cart) == "Cart('7', version=1, lines=['tea'], limit=3)"
