"""Waiting for a view to pass a write, with a clock that only pauses move."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from millstream.base.ports import Positions
from millstream.schemas.declaration import schema_of
from millstream.views.store import BadQuestion, Row, ViewNotFound
from millstream.views.waiting import (
    PAUSE_SECONDS_MAX,
    After,
    Fresh,
    NotFreshYet,
    NotReadByView,
    wanted_positions,
)


@dataclass(frozen=True)
class At:
    topic: str
    partition: int
    offset: int


@dataclass
class MovingView:
    """Is at the next of its positions at each look; None is a view that is not there."""

    moves: list[Positions | None]
    looks: int = 0
    schema = schema_of("a INT")
    key = ("a",)

    def position(self) -> Positions:
        found = self.moves[min(self.looks, len(self.moves) - 1)]
        self.looks += 1
        if found is None:
            raise ViewNotFound(view="counts", place="nowhere")
        return found

    def count(self) -> int:
        return 42

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        raise NotImplementedError

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        raise NotImplementedError

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        raise NotImplementedError

    def close(self) -> None:
        pass


@dataclass
class PausedClock:
    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def ask(
    view: MovingView, after: After, *, timeout: float = 10.0, clock: PausedClock | None = None
) -> int:
    clock = clock or PausedClock()
    fresh = Fresh("counts", view, job=lambda: "Its job stands.", clock=clock, pause=clock.pause)
    return fresh.ask(lambda now: now.count(), wanted=wanted_positions(after), timeout=timeout)


def test_a_view_that_has_passed_the_write_answers_at_once() -> None:
    clock = PausedClock()
    assert ask(MovingView([{"clicks": {0: 8}}]), At("clicks", 0, 7), timeout=0, clock=clock) == 42
    assert clock.pauses == []


def test_it_waits_until_the_position_is_past_the_offset() -> None:
    view = MovingView([None, {}, {"clicks": {}}, {"clicks": {0: 7}}, {"clicks": {0: 8}}])
    assert ask(view, At("clicks", 0, 7)) == 42
    assert view.looks == 5


def test_every_receipt_must_be_passed() -> None:
    view = MovingView([{"clicks": {0: 9, 1: 3}}, {"clicks": {0: 9, 1: 4}}])
    assert ask(view, [At("clicks", 0, 7), At("clicks", 1, 3), At("clicks", 1, 2)]) == 42
    assert view.looks == 2


def test_looks_grow_apart_up_to_a_limit() -> None:
    clock = PausedClock()
    with pytest.raises(NotFreshYet):
        ask(MovingView([{"clicks": {0: 7}}]), At("clicks", 0, 7), timeout=1.0, clock=clock)
    assert clock.pauses[0] == 0.001
    assert max(clock.pauses) == PAUSE_SECONDS_MAX
    assert sorted(clock.pauses[:-1]) == clock.pauses[:-1]
    assert clock.now == pytest.approx(1.0)


def test_who_waited_in_vain_is_told_where_the_view_is() -> None:
    view = MovingView([{"clicks": {0: 7, 1: 3}}])
    with pytest.raises(NotFreshYet) as raised:
        ask(view, [At("clicks", 0, 9), At("clicks", 1, 2)], timeout=2)
    assert str(raised.value) == (
        "view counts is not that fresh after 2 s: clicks[0] is read to 7, and asked to 10. "
        "Its job stands."
    )
    assert raised.value.behind == {"clicks": {0: 10}}


def test_a_view_that_never_comes_is_told() -> None:
    with pytest.raises(NotFreshYet, match=r"the view is not there yet, and clicks\[0\] is asked"):
        ask(MovingView([None]), At("clicks", 0, 9), timeout=0)


def test_a_topic_that_the_view_is_not_made_from_is_told_at_once() -> None:
    clock = PausedClock()
    with pytest.raises(
        NotReadByView, match=r"not made from topic orders \(but from clicks, users\)"
    ):
        ask(MovingView([{"users": {0: 1}, "clicks": {0: 7}}]), At("orders", 0, 0), clock=clock)
    assert clock.pauses == []


@pytest.mark.parametrize("after", [7, "clicks:0:7", [{"topic": "clicks"}]])
def test_what_is_no_receipt_is_told(after: Any) -> None:
    with pytest.raises(BadQuestion, match=r"give what app\.publish returned"):
        wanted_positions(after)


def test_no_receipts_ask_for_nothing() -> None:
    assert wanted_positions(None) == wanted_positions([]) == {}
