"""Definitions of views that every operator is in, alone and after others."""

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
from tests.support.random_views import CUSTOMERS, ORDERS
from tests.support.view_definitions import (
    AtLeast,
    Definition,
    Distinct,
    Join,
    Remainder,
    Renamed,
    Top,
    Totals,
)

EVERY_AGGREGATE: dict[str, TableAggregate] = {
    "orders": Count(),
    "amounts": Count("amount"),
    "total": Sum("amount"),
    "average": Average("amount"),
    "least": Least("amount"),
    "greatest": Greatest("product"),
    "different": DistinctCount("amount"),
    "ids": Collected("order_id"),
}
PRICED = Join(ORDERS, CUSTOMERS, ("customer", "customer_id"), "left")
BY_LEVEL = Totals(PRICED, ("level",), {"spent": Sum("amount"), "first": Least("order_id")})
VIEWS: dict[str, Definition] = {
    "every aggregate": Totals(ORDERS, ("customer",), EVERY_AGGREGATE),
    "a condition that rows stop to meet": AtLeast(ORDERS, "customer", 1),
    "first rows of groups": Top(ORDERS, 2, ("customer",), ("-amount", "product"), "place"),
    "first rows of all": Top(ORDERS, 3, (), ("product", "-amount"), None),
    "distinct values": Distinct(AtLeast(ORDERS, "order_id", 2), ("customer", "product")),
    "totals of a join": BY_LEVEL,
    "first rows of totals of a join": Top(BY_LEVEL, 1, (), ("-spent",), None),
    "a join of totals": Join(
        Totals(ORDERS, ("customer",), {"spent": Sum("amount")}),
        Renamed(AtLeast(CUSTOMERS, "level", 1), "_2"),
        ("customer", "customer_id_2"),
        "full",
    ),
    "totals of a join of totals": Totals(
        Remainder(
            Join(
                Totals(ORDERS, ("customer",), {"spent": Sum("amount"), "count": Count()}),
                CUSTOMERS,
                ("customer", "customer_id"),
                "inner",
            ),
            "level",
            "odd",
        ),
        ("odd",),
        {"most": Greatest("spent"), "customers": Collected("customer"), "all": Sum("count")},
    ),
}
