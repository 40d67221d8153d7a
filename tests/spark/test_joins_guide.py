"""The jobs of docs/guides/joins.md, as they stand there, over real topics and real Spark."""

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.processing.steps.stage import Stage

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "joins.md"


@pytest.fixture(scope="module")
def app() -> Any:
    """Declared only: nothing is started."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    space: dict[str, Any] = {}
    exec("\n".join(blocks), space)
    return space["app"]


def test_an_ad_that_nobody_clicked_is_given_alone(app: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(app, "ad_clicks")
    steps.add("shown", {"ad_id": "a", "at": "12:00"}, {"ad_id": "b", "at": "12:01"})
    steps.add("clicked", {"ad_id": "a", "user": "ada", "at": "12:10"})
    steps.add("clicked", {"ad_id": "b", "user": "bob", "at": "12:11:00.001"})
    clicked = {"ad_id": "a", "page": None, "at": "12:00", "user": "ada", "at_right": "12:10"}
    steps.expect([clicked])
    steps.advance("shown", "12:30")
    steps.expect([clicked])
    steps.advance("clicked", "12:30")
    alone = {"ad_id": "b", "page": None, "at": "12:01", "user": None, "at_right": None}
    steps.expect([clicked, alone])


def test_an_order_waits_for_its_customer(app: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(app, "named_orders")
    steps.add("orders", *(order(number, customer=number) for number in (1, 2, 3)))
    steps.add("customers", {"customer_id": 1, "name": "Ada"})
    named = [order(1, customer=1) | {"name": "Ada"}]
    steps.expect(named)
    steps.add("customers", {"customer_id": 2, "name": "Bob"})
    named.append(order(2, customer=2) | {"name": "Bob"})
    steps.expect(named)
    steps.advance("orders", "12:00:30")
    steps.expect([*named, order(3, customer=3) | {"name": None}])


def order(number: int, *, customer: int) -> dict[str, Any]:
    return {"order_id": number, "customer_id": customer, "placed_at": "12:00"}


def test_a_sale_is_taxed_at_the_rate_of_its_day(app: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(app, "taxed_sales")
    steps.add("tax_rates", rate("2020-07-01", 16), rate("2025-01-01", 19))
    steps.add("sales", sale(1), sale(2))
    steps.expect_changes([taxed(1, 16, "2020-07-01"), taxed(2, 19, "2025-01-01")])
    steps.restart()
    steps.add("tax_rates", rate("2024-12-15", 7))
    steps.expect_changes([taxed(1, 7, "2024-12-15")])
    steps.delete("tax_rates", {"country": "de", "valid_from": "2024-12-15T00:00:00Z"})
    steps.expect_changes([taxed(1, 16, "2020-07-01")])
    steps.expect_same_as_batch()


SOLD_AT = {1: "2024-12-31T23:59:59Z", 2: "2025-01-01T00:00:00Z"}


def sale(number: int) -> dict[str, Any]:
    return {"sale_id": number, "country": "de", "amount": 100, "sold_at": SOLD_AT[number]}


def rate(day: str, percent: int) -> dict[str, Any]:
    return {"country": "de", "valid_from": f"{day}T00:00:00Z", "percent": percent}


def taxed(number: int, percent: int, day: str) -> dict[str, Any]:
    version = {"valid_from": f"{day}T00:00:00Z", "percent": percent}
    return sale(number) | version
