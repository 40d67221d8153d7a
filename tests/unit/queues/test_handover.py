"""The handover alone, in a loop of its own: nothing is sent, and time stands still."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from millstream.base.errors import Rejected
from millstream.base.record import Record
from millstream.queues.acknowledgements import Partition, Place
from millstream.queues.deliveries import Delivery
from millstream.queues.handover import Handover

T = TypeVar("T")
JOBS = Partition(b"j" * 16, 0)


def handover(prefetch: int = 0) -> Handover:
    return Handover(prefetch=prefetch, now_ms=lambda: 0, when_wanted=lambda: None)


def fetched(one: Handover, *offsets: int) -> None:
    """A link has fetched these."""
    deliveries = [
        Delivery(place=Place(JOBS, offset), count=1, record=Record(offset=offset))
        for offset in offsets
    ]
    one.held.hold(deliveries, now_ms=0, lock_ms=30_000)
    one.offer(deliveries)


async def waiting(one: Handover, timeout_ms: int | None = None) -> "asyncio.Task[Delivery | None]":
    task = asyncio.create_task(one.get(timeout_ms))
    await asyncio.sleep(0)
    return task


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def offset_of(delivery: Delivery | None) -> int | None:
    return None if delivery is None else delivery.place.offset


def test_nothing_is_fetched_while_nobody_waits() -> None:
    assert handover(prefetch=5).wanted == 0


def test_as_many_are_fetched_as_wait_and_those_ahead() -> None:
    async def scene() -> int:
        one = handover(prefetch=5)
        await waiting(one)
        await waiting(one)
        return one.wanted

    assert run(scene()) == 7


def test_jobs_go_to_those_who_wait_in_their_order() -> None:
    async def scene() -> list[int | None]:
        one = handover()
        tasks = [await waiting(one), await waiting(one)]
        fetched(one, 7, 8)
        return [offset_of(await task) for task in tasks]

    assert run(scene()) == [7, 8]


def test_a_job_for_which_nobody_waited_is_ready_for_the_next() -> None:
    async def scene() -> tuple[int | None, int | None]:
        one = handover()
        fetched(one, 7)
        return offset_of(await one.get(0)), offset_of(await one.get(0))

    assert run(scene()) == (7, None)


def test_a_ready_job_whose_lock_was_lost_is_not_given_out() -> None:
    async def scene() -> int | None:
        one = handover()
        fetched(one, 7, 8)
        one.held.drop(Place(JOBS, 7))
        return offset_of(await one.get(0))

    assert run(scene()) == 8


def test_a_lost_session_takes_back_what_was_ready() -> None:
    async def scene() -> int | None:
        one = handover()
        fetched(one, 7)
        one.lose([JOBS])
        return offset_of(await one.get(0))

    assert run(scene()) is None


def test_one_who_has_stopped_waiting_gets_nothing() -> None:
    async def scene() -> int | None:
        one = handover()
        impatient = await waiting(one)
        impatient.cancel()
        await asyncio.sleep(0)
        fetched(one, 7)
        return offset_of(await one.get(0))

    assert run(scene()) == 7


def test_a_fetch_waits_no_longer_than_those_who_wait_for_it() -> None:
    async def scene() -> list[int]:
        one = handover()
        patience = [one.patience_ms(at_most=1_000)]
        await waiting(one, 300)
        patience.append(one.patience_ms(at_most=1_000))
        await waiting(one, None)
        return [*patience, one.patience_ms(at_most=1_000)]

    assert run(scene()) == [0, 300, 1_000]


def test_a_failure_is_told_to_those_who_wait_and_to_those_who_come() -> None:
    async def scene() -> None:
        one = handover()
        task = await waiting(one)
        one.fail(Rejected("not for you"))
        with pytest.raises(Rejected, match="not for you"):
            await task
        with pytest.raises(Rejected, match="not for you"):
            await one.get(None)

    run(scene())


def test_closing_sends_everybody_home() -> None:
    async def scene() -> tuple[int | None, int | None]:
        one = handover()
        task = await waiting(one)
        one.close()
        return offset_of(await task), offset_of(await one.get(None))

    assert run(scene()) == (None, None)
