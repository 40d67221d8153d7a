"""Random definitions of views over two tables, and random changes of these: for Hypothesis."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, LongType, StringType

from millstream.processing.operators.aggregate_state import TableAggregate
from millstream.processing.operators.aggregates import (
    Average,
    Collected,
    Count,
    DistinctCount,
    Greatest,
    Least,
    Sum,
)
from tests.support.view_definitions import (
    AtLeast,
    Definition,
    Distinct,
    Join,
    Remainder,
    Renamed,
    Row,
    Table,
    Top,
    Totals,
)

ORDERS = Table(
    "orders",
    {
        "order_id": LongType(),
        "customer": LongType(),
        "product": StringType(),
        "amount": DoubleType(),
    },
    ("order_id",),
)
CUSTOMERS = Table("customers", {"customer_id": LongType(), "level": LongType()}, ("customer_id",))
STEPS_MAX = 4

FINITE = [0.1, 0.2, 0.3, 0.7, 1.0, 2.5, -0.0, 0.0, 1e300, -1e300]
AMOUNTS = [*FINITE, *FINITE, None, float("inf"), float("nan")]
ORDER_ROWS = st.fixed_dictionaries(
    {
        "order_id": st.integers(0, 4),
        "customer": st.sampled_from([None, 0, 1, 2]),
        "product": st.sampled_from([None, "x", "y"]),
        "amount": st.sampled_from(AMOUNTS),
    }
)
CUSTOMER_ROWS = st.fixed_dictionaries(
    {"customer_id": st.integers(0, 2), "level": st.sampled_from([None, 0, 1, 5])}
)
# The table, the row, and whether it is the row's end.
ORDER_CHANGES = st.tuples(st.just(ORDERS), ORDER_ROWS, st.sampled_from([False, False, True]))
CUSTOMER_CHANGES = st.tuples(st.just(CUSTOMERS), CUSTOMER_ROWS, st.sampled_from([False, True]))
CHANGES = st.one_of(ORDER_CHANGES, ORDER_CHANGES, CUSTOMER_CHANGES)
Change = tuple[Table, Row, bool]
BATCHES = st.lists(st.lists(CHANGES, min_size=1, max_size=8), min_size=3, max_size=6)

Draw = Callable[..., Any]


@st.composite
def definitions(draw: Draw, steps: int = STEPS_MAX) -> Definition:
    """No name is given twice: each step has a number."""
    definition: Definition = draw(st.sampled_from([ORDERS, ORDERS, CUSTOMERS]))
    for number in range(draw(st.integers(1, steps))):
        makers = [_at_least, _remainder, _totals, _totals, _distinct, _top, _top]
        joins = [_join, _join] if steps > 1 else []
        definition = draw(st.sampled_from([*makers, *joins]))(draw, definition, number, steps)
    return definition


def _at_least(draw: Draw, of: Definition, number: int, steps: int) -> Definition:
    numbers = of.named(LongType)
    return AtLeast(of, draw(st.sampled_from(numbers)), draw(st.integers(0, 3))) if numbers else of


def _remainder(draw: Draw, of: Definition, number: int, steps: int) -> Definition:
    numbers = of.named(LongType)
    name = f"remainder{number}"
    return Remainder(of, draw(st.sampled_from(numbers)), name) if numbers else of


def _totals(draw: Draw, of: Definition, number: int, steps: int) -> Definition:
    by = draw(_some(list(of.columns)))
    wanted = draw(st.lists(_aggregates(of), min_size=2, max_size=5))
    return Totals(of, by, {f"total{number}_{place}": one for place, one in enumerate(wanted)})


def _aggregates(of: Definition) -> st.SearchStrategy[TableAggregate]:
    any_column = st.sampled_from(list(of.columns))
    kinds: list[st.SearchStrategy[Any]] = [
        st.just(Count()),
        *(st.builds(kind, any_column) for kind in (Count, Least, Greatest, DistinctCount)),
    ]
    if flat := of.named(LongType, DoubleType, StringType):
        kinds.append(st.builds(Collected, st.sampled_from(flat)))
    if numbers := of.named(LongType, DoubleType):
        kinds += [st.builds(kind, st.sampled_from(numbers)) for kind in (Sum, Average)]
    return st.one_of(kinds)


def _distinct(draw: Draw, of: Definition, number: int, steps: int) -> Definition:
    return Distinct(of, draw(_some(list(of.columns))))


def _top(draw: Draw, of: Definition, number: int, steps: int) -> Definition:
    order = [draw(st.sampled_from(["", "-"])) + name for name in draw(_some(list(of.columns)))]
    by = draw(st.one_of(st.just(()), _some(list(of.columns))))
    rank = draw(st.sampled_from([None, f"rank{number}"]))
    return Top(of, draw(st.integers(1, 3)), by, tuple(order), rank)


def _join(draw: Draw, of: Definition, number: int, steps: int) -> Definition:
    other = Renamed(draw(definitions(steps=1)), f"_{number}")
    lefts, rights = of.named(LongType), other.named(LongType)
    if not lefts or not rights:
        return of
    on = draw(st.sampled_from(lefts)), draw(st.sampled_from(rights))
    return Join(of, other, on, draw(st.sampled_from(["inner", "left", "right", "full"])))


def _some(names: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(tuple)
