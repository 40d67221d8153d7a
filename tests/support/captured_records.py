"""Changes in a table's topic, as a capture writes them: whole transactions, with our envelope."""

import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

WITHIN_S = 60.0
Row = dict[str, Any]


def envelope(
    op: str, after: Row | None, *, unavailable: Sequence[str] = (), **source: Any
) -> bytes:
    facts = {"before": None, "after": after, "source": {"table": "orders", **source}, "op": op}
    left_out = {"unavailable": list(unavailable)} if unavailable else {}
    return json.dumps(facts | {"ts_ms": 8} | left_out).encode()


class CapturedRecords:
    """The topic of one table. Changes are pairs: op, row; a delete needs the row's key alone."""

    def __init__(self, producer: Producer, topic: str, *, key: str = "id") -> None:
        self.topic, self._producer, self._key, self._transactions = topic, producer, key, 0

    def commit(self, *changes: tuple[str, Row], unavailable: Sequence[str] = ()) -> None:
        self._write(*changes, unavailable=unavailable)
        self._producer.commit_transaction(WITHIN_S)

    def abort(self, *changes: tuple[str, Row]) -> None:
        self._write(*changes)
        self._producer.abort_transaction(WITHIN_S)

    def _write(self, *changes: tuple[str, Row], unavailable: Sequence[str] = ()) -> None:
        self._transactions += 1
        self._producer.begin_transaction()
        for seq, (op, row) in enumerate(changes):
            self._change(op, row, seq, unavailable)
        assert self._producer.flush(WITHIN_S) == 0

    def _change(self, op: str, row: Row, seq: int, unavailable: Sequence[str]) -> None:
        key = json.dumps({self._key: row[self._key]} if row else {}).encode()
        place: dict[str, Any] = {
            "commit": f"0/{self._transactions:X}",
            "seq": seq,
            "txId": "7",
            "ts_ms": 7,
        }
        value = envelope(op, None if op in "dt" else row, unavailable=unavailable, **place)
        self._producer.produce(self.topic, value, key)
        if op == "d":
            self._producer.produce(self.topic, None, key)
