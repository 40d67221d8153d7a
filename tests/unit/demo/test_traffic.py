"""What happens in the shop: the same for the same seed, and all kinds of trouble in it."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

from millstream.demo.traffic import (
    CUSTOMERS,
    PRODUCTS,
    WRONG_CLOCK_DEVICE,
    Action,
    Move,
    Order,
    PriceChange,
    Send,
    Traffic,
    payment_record,
)

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
MANY = 20_000


def actions(seed: int = 1, count: int = MANY) -> list[Action]:
    return list(Traffic(seed).actions(count, NOON))


def sends(found: list[Action], topic: str) -> list[Send]:
    return [one for one in found if isinstance(one, Send) and one.topic == topic]


def test_the_same_seed_gives_the_same_actions() -> None:
    assert actions(7, 500) == actions(7, 500)
    assert actions(7, 500) != actions(8, 500)


def test_actions_go_on_where_the_last_ones_ended() -> None:
    traffic = Traffic(7)
    halves = [*traffic.actions(250, NOON), *traffic.actions(250, NOON)]
    kinds = [type(one) for one in actions(7, 500)]
    assert [type(one) for one in halves] == kinds


def test_all_kinds_of_trouble_happen() -> None:
    found = actions()
    flaws = Counter(one.flaw for one in found if isinstance(one, Send))
    assert flaws["late"] > 0
    assert flaws["wrong clock"] > 0
    assert flaws["malformed"] > 0
    orders = [one for one in found if isinstance(one, Order)]
    assert {one.copies for one in orders} == {1, 2}
    assert any(one.delay_s for one in orders)
    assert any(isinstance(one, Move) for one in found)
    assert any(isinstance(one, PriceChange) for one in found)


def test_customers_and_products_are_those_of_the_database() -> None:
    orders = [one for one in actions() if isinstance(one, Order)]
    assert {one.customer_id for one in orders} <= set(range(CUSTOMERS))
    assert {one.product_id for one in orders} <= set(range(len(PRODUCTS)))


def test_late_clicks_are_before_and_those_of_the_wrong_clock_years_after() -> None:
    clicks = sends(actions(), "clicks")
    late = [one for one in clicks if one.flaw == "late"]
    wrong = [one for one in clicks if one.flaw == "wrong clock"]
    assert all(time_of(one) < NOON - timedelta(seconds=14) for one in late)
    assert all(time_of(one) > NOON + timedelta(days=365) for one in wrong)
    assert {json.loads(one.value)["device"] for one in wrong} == {WRONG_CLOCK_DEVICE}


def test_an_ad_is_clicked_only_after_it_was_shown() -> None:
    found = actions()
    shown = {one.key: time_of(one) for one in sends(found, "ads_shown")}
    clicked = sends(found, "ads_clicked")
    assert clicked
    assert all(time_of(one) > shown[one.key] for one in clicked)


def test_actions_of_one_moment_are_in_order_by_their_times() -> None:
    times = [one.at for one in actions() if isinstance(one, Order | PriceChange | Move)]
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_a_payment_is_the_same_record_each_time() -> None:
    first, second = (payment_record(7, 3, 1_250, NOON) for _ in range(2))
    assert first == second
    assert json.loads(first.value) == {
        "payment_id": 7,
        "order_id": 3,
        "cents": 1_250,
        "at": "2026-07-01T12:00:00.000000+00:00",
    }


def time_of(record: Send) -> datetime:
    return datetime.fromisoformat(json.loads(record.value)["at"])
