"""An application for the HTTP server that needs no broker: topics in memory, a view in SQLite."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.base.changes import CHANGE, DELETE
from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.errors import MillstreamError
from millstream.base.ports import BatchReceipt, Positions
from millstream.base.record import Record
from millstream.base.schema import Schema
from millstream.capture.recorded_change import (
    NOW,
    RecordedChange,
    change_from,
    offsets_in,
    token_of,
)
from millstream.publishing import record_maker
from millstream.queues.outbox import Receipt
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.declaration import schema_of
from millstream.views.store import Generation, Row
from millstream.views.stores.sqlite.file import SqliteStore
from millstream.views.view import View
from millstream.web.key_journal import KeyBook, KeyUse, require_same
from millstream.web.ports import Declared
from tests.support.captured_records import envelope

ORDERS = "shop.orders"
NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
SALES = schema_of("shop STRING, day DATE, total DECIMAL(12,2), at TIMESTAMP, share DOUBLE")
TOPICS: Mapping[str, Declared] = {
    "clicks": DeclaredTopic(
        name="clicks",
        schema=schema_of("user STRING NOT NULL, url STRING, count INT, at TIMESTAMP"),
        key=("user",),
    ),
    "prices": DeclaredTable(
        name="prices",
        schema=schema_of("item BIGINT NOT NULL, price DECIMAL(10,2) NOT NULL"),
        key=("item",),
    ),
    "notes": DeclaredTopic(name="notes"),
}


class KeptView:
    """A view in a file, and its job: what is written is current to one more offset of clicks."""

    def __init__(self, folder: Path, name: str, schema: Schema, key: Sequence[str]) -> None:
        self.name, self.schema = name, schema
        self.store = SqliteStore(folder / f"{name}.sqlite", view=name, key=tuple(key))
        self._writer = self.store.writer(1)
        self._epoch = self._writer.claim("job", schema)
        self._writer.serve()
        self._batches = 0

    def write(
        self,
        rows: Sequence[Row],
        *,
        deletes: bool = False,
        positions: Positions | None = None,
    ) -> None:
        schema = nullable_arrow_schema(self.schema)
        table = pa.Table.from_pylist(list(rows), schema)
        if deletes:
            table = table.append_column(CHANGE, pa.array([DELETE] * len(rows)))
        receipt = BatchReceipt(
            job="job",
            epoch=self._epoch,
            query="q",
            batch=self._batches,
            positions=positions or {"clicks": {0: self._batches + 1}},
        )
        self._writer.write(receipt, table)
        self._batches += 1

    def close(self) -> None:
        self._writer.close()


class ListedChanges:
    """Those of a list, also what is added to it later. As a topic has them: after a moment."""

    def __init__(self, changes: list[RecordedChange], known: int) -> None:
        self._changes, self._next = changes, known
        self._end = len(changes)

    @property
    def has_all(self) -> bool:
        return self._next >= self._end

    @property
    def token(self) -> str:
        return token_of(ORDERS, {0: self._next})

    async def __anext__(self) -> RecordedChange:
        await asyncio.sleep(0.03)
        while len(self._changes) <= self._next:  # noqa: ASYNC110 - another thread adds to it
            await asyncio.sleep(0.01)
        self._next += 1
        return self._changes[self._next - 1]

    def __aiter__(self) -> "ListedChanges":
        return self

    async def aclose(self) -> None:
        pass


def order_change(op: str, number: int, *, at: int) -> RecordedChange:
    """`at`: its place in the list, from 0."""
    return change_from(
        b'{"id":%d}' % number,
        envelope(op, None if op == "d" else {"id": number}, commit=f"0/{at}", seq=0),
        token_of(ORDERS, {0: at + 1}),
    )


class MemoryApplication:
    """Topics are lists, and so is a captured table; `views` are views over files."""

    name = "shop"

    def __init__(self, *views: KeptView) -> None:
        self.written: list[Record] = []
        self.kept = {view.name: view for view in views}
        self.opened = {name: View(name, one.store.reader()) for name, one in self.kept.items()}
        self.book = KeyBook(keep_ms=1_000, bytes_max=1 << 20)
        self.captured = [order_change("c", 7, at=0), order_change("d", 7, at=1)]
        self.broker_trouble: MillstreamError | None = None
        self.gate = threading.Event()
        self.gate.set()

    def topics(self) -> Mapping[str, Declared]:
        return TOPICS

    def records(self, topic: str, rows: Sequence[Any]) -> list[Record]:
        return [record_maker(TOPICS[topic])(row) for row in rows]

    def publish(self, topic: str, records: Sequence[Record]) -> list[Receipt]:
        start = len(self.written)
        self.written += records
        return [Receipt(topic, 0, start + place) for place in range(len(records))]

    def publish_once(
        self, key: str, request: str, topic: str, records: Sequence[Record]
    ) -> list[Receipt]:
        known = self.book.find(key)
        if known is not None:
            require_same(key, known, topic=topic, request=request)
            return list(known.receipts)
        receipts = self.publish(topic, records)
        self.book.add(key, KeyUse(topic, request, tuple(receipts)).to_value(), at_ms=0)
        return receipts

    def views(self) -> Sequence[str]:
        return list(self.opened)

    def view(self, name: str) -> View:
        assert self.gate.wait(60)
        return self.opened[name]

    def generations(self, view: str) -> Sequence[Generation]:
        return self.kept[view].store.generations()

    def tables(self) -> Sequence[str]:
        return ["orders"]

    def changes(self, table: str, *, since: str | None) -> "ListedChanges":
        if since == NOW:
            return ListedChanges(self.captured, len(self.captured))
        known = 0 if since is None else offsets_in(since, ORDERS)[0]
        return ListedChanges(self.captured, known)

    def require_broker(self) -> None:
        if self.broker_trouble is not None:
            raise self.broker_trouble

    def close(self) -> None:
        for name, view in self.opened.items():
            view.close()
            self.kept[name].close()


def sales_row(shop: str, day: int, total: str, share: float = 0.5) -> Row:
    of_day = date(2026, 11, day)
    return {"shop": shop, "day": of_day, "total": Decimal(total), "at": NOON, "share": share}


def sales_view(folder: Path) -> KeptView:
    """Two shops, five days each; its key has two columns."""
    view = KeptView(folder, "sales", SALES, ("shop", "day"))
    shops = [("a/b", day) for day in range(1, 6)] + [("ada", day) for day in range(1, 6)]
    view.write([sales_row(shop, day, f"{day}.50") for shop, day in shops])
    return view
