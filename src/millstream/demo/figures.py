"""What the demo shows: how much is in the topics, what the views have, and whether totals agree.

Reads from outside, as any other process would: views from their files, topics by a Kafka client,
the database by SQL. Totals are exact: of one moment when nothing moves, they must be equal.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.base.errors import MillstreamError
from millstream.views.sql import SqlNotInstalled

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from millstream.app import App
    from millstream.demo.database import ShopDatabase

# Not orders_placed: the marks of transactions count as offsets too. The database has the orders.
TOPICS = ("clicks", "ads_shown", "ads_clicked", "payments")
SIDE_TOPICS = ("clicks.dead", "payments.dead", "clicks.late", "payments.late")
OFFSET_SECONDS_MAX = 3.0

# The number of each view that says most. All are of one batch of its job.
HEADLINES: Mapping[str, str] = {
    "revenue_a_minute": "SELECT sum(cents) / 100.0 AS revenue, sum(payments) AS payments "
    "FROM revenue_a_minute",
    "orders_with_customer": "SELECT count(*) AS orders, count(DISTINCT city) AS cities "
    "FROM orders_with_customer",
    "orders_with_price": "SELECT count(*) AS orders, sum(cents) / 100.0 AS worth "
    "FROM orders_with_price",
    "customer_360": "SELECT count(*) AS customers, max(spent) / 100.0 AS best_spent "
    "FROM customer_360",
    "visits": "SELECT count(*) AS visits, sum(clicks) AS clicks, sum(searches) AS searches "
    "FROM visits",
    "ads_that_worked": "SELECT count(*) AS clicked_ads FROM ads_that_worked",
    "stock_on_hand": "SELECT sum(on_hand) AS units_on_hand, sum(shipped) AS shipped "
    "FROM stock_on_hand",
}
IN_DATABASE = """\
SELECT (SELECT count(*) FROM orders), (SELECT coalesce(sum(cents), 0) FROM orders),
       (SELECT count(*) FROM payments), (SELECT coalesce(sum(cents), 0) FROM payments)"""
IN_VIEWS: Mapping[str, str] = {
    "customer_360": "SELECT sum(orders) AS number, sum(spent) AS cents FROM customer_360",
    "orders_with_price": "SELECT count(*) AS number, sum(cents) AS cents FROM orders_with_price",
    "orders_with_customer": "SELECT count(*) AS number, NULL AS cents FROM orders_with_customer "
    "WHERE city IS NOT NULL",
    "stock_on_hand": "SELECT sum(shipped) AS number, NULL AS cents FROM stock_on_hand",
    "revenue_a_minute": "SELECT sum(payments) AS number, sum(cents) AS cents FROM revenue_a_minute",
}


@dataclass(frozen=True, slots=True)
class Total:
    """How many, and what they come to; None: not asked."""

    number: int
    cents: int | None

    def __str__(self) -> str:
        return f"{self.number:,}" + ("" if self.cents is None else f" = {self.cents / 100:,.2f}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One view against the database."""

    view: str
    database: Total
    found: Total | None

    @property
    def is_equal(self) -> bool:
        if self.found is None or self.found.number != self.database.number:
            return False
        return self.found.cents is None or self.found.cents == self.database.cents


class Figures:
    """Opens what it reads, and keeps it open. One thread."""

    def __init__(self, app: "App", database: "ShopDatabase") -> None:
        self._app, self._database = app, database
        self._views: dict[str, Any] = {}
        self._consumer: Consumer | None = None
        self._connection: Any = None

    def headlines(self) -> dict[str, Mapping[str, Any]]:
        """Of the views that are there."""
        return {name: row for name, text in HEADLINES.items() if (row := self._row(name, text))}

    def positions(self) -> dict[str, Any]:
        """How far each view that has rows is current: one that differs from before has moved."""
        found = {}
        for name in HEADLINES:
            with contextlib.suppress(MillstreamError):
                view = self._view(name)
                if view.count():
                    found[name] = view.position()
        return found

    def comparisons(self) -> list[Comparison]:
        orders, payments = self._in_database()
        return [
            Comparison(
                name, payments if name == "revenue_a_minute" else orders, self._total(name, text)
            )
            for name, text in IN_VIEWS.items()
        ]

    def records(self) -> dict[str, int]:
        """How many records each topic has had, none while the broker is away; and orders."""
        from confluent_kafka import KafkaException

        found = {"orders": self._in_database()[0].number}
        with contextlib.suppress(KafkaException):
            consumer = self._open_consumer()
            there = consumer.list_topics(timeout=OFFSET_SECONDS_MAX).topics
            for topic in (*TOPICS, *SIDE_TOPICS):
                if topic in there:
                    found[topic] = _records_of(consumer, topic, list(there[topic].partitions))
        return found

    def _in_database(self) -> tuple[Total, Total]:
        """Orders and payments."""
        if self._connection is None:
            self._connection = self._database.connect()
        row = self._connection.execute(IN_DATABASE).fetchone()
        return Total(int(row[0]), int(row[1])), Total(int(row[2]), int(row[3]))

    def close(self) -> None:
        for view in self._views.values():
            view.close()
        if self._consumer is not None:
            self._consumer.close()
        if self._connection is not None:
            self._connection.close()

    def _view(self, name: str) -> Any:
        if name not in self._views:
            self._views[name] = self._app.view(name)
        return self._views[name]

    def _row(self, name: str, text: str) -> Mapping[str, Any] | None:
        """Nothing while the view is not there yet."""
        try:
            rows = self._view(name).sql(text)
        except SqlNotInstalled:
            raise
        except MillstreamError:
            return None
        return dict(rows[0]) if rows else None

    def _total(self, name: str, text: str) -> Total | None:
        row = self._row(name, text)
        if row is None or row["number"] is None:
            return None
        return Total(int(row["number"]), None if row["cents"] is None else int(row["cents"]))

    def _open_consumer(self) -> "Consumer":
        if self._consumer is None:
            from confluent_kafka import Consumer

            config = dict(self._app.client_config) | {"group.id": "demo-figures", "log_level": 0}
            self._consumer = Consumer(config)
        return self._consumer


def _records_of(consumer: "Consumer", topic: str, partitions: list[int]) -> int:
    from confluent_kafka import TopicPartition

    places = (TopicPartition(topic, number) for number in partitions)
    return sum(consumer.get_watermark_offsets(one, OFFSET_SECONDS_MAX)[1] for one in places)


@contextlib.contextmanager
def opened_figures(app: "App", database: "ShopDatabase") -> Iterator[Figures]:
    figures = Figures(app, database)
    try:
        yield figures
    finally:
        figures.close()
