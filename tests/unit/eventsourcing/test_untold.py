"""Where events are personal, no error that we make has a value in it."""

import logging
import traceback
from collections.abc import Iterator
from datetime import date
from enum import Enum
from typing import Any, cast

import msgspec
import pytest

from millstream.base.errors import MillstreamError
from millstream.eventsourcing.aggregate import Aggregate, FoldFailed
from millstream.eventsourcing.aggregates import Aggregates
from millstream.eventsourcing.command_arguments import call_from
from millstream.eventsourcing.command_calls import BadArguments
from millstream.eventsourcing.command_topic import refusal_of
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.event_types import (
    EventDoesNotFit,
    NotAnEvent,
    StoredDataDoesNotFit,
    UpcastFailed,
)
from millstream.eventsourcing.personal import Personal
from millstream.eventsourcing.sealed_events import KeyedSealing
from millstream.eventsourcing.snapshots import SnapshotTopic
from millstream.eventsourcing.stored_event import NewEvent
from millstream.eventsourcing.upcasting import upcast
from tests.support.memory_events import MemoryEvents, MemorySnapshots
from tests.support.plain_keys import PlainKeys

CANARY = "canary@x.org"


class Plan(Enum):
    FREE = "free"


@event(version=2)
class Joined:
    email: Personal[str]
    plan: Plan = Plan.FREE


@upcast(Joined, from_version=1)
def _from_mail(data: dict[str, Any]) -> dict[str, Any]:
    raise KeyError(data["mail"])


@event
class Left:
    pass


class Member(Aggregate):
    email = ""
    plan: Plan = Plan.FREE

    def join(self, email: str, plan: Any = Plan.FREE) -> Iterator[object]:
        yield Joined(email, plan)

    def choose(self, plan: Plan) -> Iterator[object]:
        yield Joined("", plan)

    def leave(self) -> Iterator[object]:
        yield Left()

    def slip(self) -> Iterator[object]:
        yield self.email

    def on_Joined(self, found: Joined) -> None:  # noqa: N802 - the name of the event
        self.email = found.email

    def on_Left(self, found: Left) -> None:  # noqa: N802 - the same
        raise KeyError(self.email)


@pytest.fixture
def store() -> MemoryEvents:
    return MemoryEvents()


@pytest.fixture
def members(store: MemoryEvents) -> Aggregates[Member]:
    return Aggregates(Member, store.as_store, sealing=KeyedSealing(PlainKeys()))


def told_by(error: MillstreamError) -> str:
    """In an answer, and in diagnostics with the traceback."""
    lines = traceback.format_exception(error)
    assert CANARY not in str(refusal_of(error))
    assert CANARY not in "".join(lines)
    return str(error)


def test_a_fold_that_fails_is_told_by_its_kind_and_line(members: Aggregates[Member]) -> None:
    members["1"].join(CANARY)
    with pytest.raises(FoldFailed, match=r"KeyError in test_untold\.py, line \d+") as caught:
        members["1"].leave()
    assert "not told" in told_by(caught.value)


def test_a_value_that_does_not_fit_is_not_told(members: Aggregates[Member]) -> None:
    with pytest.raises(EventDoesNotFit) as caught:
        members["1"].join("a@x.org", plan=CANARY)
    told_by(caught.value)
    wrong: Any = date(2026, 11, 18)
    with pytest.raises(EventDoesNotFit, match=r"Expected `str`, got `int` - at `\$\.email`"):
        members["1"].join(cast(str, wrong.year))


def test_what_is_no_event_is_told_by_its_kind(members: Aggregates[Member]) -> None:
    members["1"].join(CANARY)
    with pytest.raises(NotAnEvent, match="a str is no event") as caught:
        members["1"].slip()
    told_by(caught.value)


def test_an_argument_that_does_not_fit_is_not_told() -> None:
    sent = {"plan": msgspec.Raw(msgspec.json.encode(CANARY))}
    with pytest.raises(BadArguments, match=r"Member\.choose: plan: ValidationError") as caught:
        call_from(Member, "choose", sent)
    told_by(caught.value)


@pytest.mark.parametrize(
    ("version", "data", "expected"),
    [
        (1, {"mail": CANARY}, UpcastFailed),
        (2, {"email": "a@x.org", "plan": CANARY}, StoredDataDoesNotFit),
    ],
)
def test_stored_data_that_does_not_fit_is_not_told(
    members: Aggregates[Member],
    store: MemoryEvents,
    version: int,
    data: dict[str, str],
    expected: type[MillstreamError],
) -> None:
    new = NewEvent(type="Joined", data=msgspec.json.encode(data), type_version=version, id="x")
    store.append("Member:1", [new])
    with pytest.raises(expected) as caught:
        members["1"].state()
    told_by(caught.value)


def test_a_state_that_is_not_kept_is_not_told(
    store: MemoryEvents, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Aggregate):
        plan: Plan = Plan.FREE

        def join(self, email: str) -> Iterator[object]:
            yield Joined(email)

        def on_Joined(self, found: Joined) -> None:  # noqa: N802 - the name of the event
            self.plan = cast(Plan, found.email)

    odd = Aggregates(
        Odd,
        store.as_store,
        snapshots=cast(SnapshotTopic, MemorySnapshots()),
        snapshot_every=1,
        sealing=KeyedSealing(PlainKeys()),
    )
    with caplog.at_level(logging.WARNING):
        odd["1"].join(CANARY)
    assert "no snapshots of Odd" in caplog.text
    assert CANARY not in caplog.text
