"""A captured change as a reader of its topic has it, and tokens: where to go on from. Pure.

A token names the topic, and the next offset of each of its partitions:

    shop.orders@0:1042,1:977

Values of rows are JSON's (docs/formats/capture_values.md): text where a number would lose digits.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from millstream.base.errors import Corrupt, Rejected
from millstream.capture.change import TRUNCATED, Op

Row = dict[str, Any]
Offsets = Mapping[int, int]

NOW: Final = "now"
PLACE = r"[0-9]{1,9}:[0-9]{1,18}"
TOKEN = re.compile(rf"(?P<topic>[A-Za-z0-9._-]+)@(?P<places>{PLACE}(,{PLACE})*)")


class BadToken(Rejected):
    def __init__(self, *, token: str, topic: str) -> None:
        super().__init__(
            f"{token!r} is no token of {topic}: give what a change of it had as its token, or "
            f"{NOW!r} for what comes from now on"
        )
        self.token, self.topic = token, topic


class NotAnEnvelope(Corrupt):
    def __init__(self, *, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{topic}[{partition}]: the record at offset {offset} is no captured change: {reason}. "
            "Does another program write into this topic?"
        )
        self.topic, self.partition, self.offset = topic, partition, offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """One change of one row.

    `op`: c created, u updated, d deleted, r read by the initial load; t: the table was truncated,
    told once for each partition, and followed by a d for each row that went.
    `key`: the row's; None of a table without a key, and of t. `before`: what the database told of
    the old row. `after`: the row; None when it is gone. `unavailable`: columns that `after` lacks,
    as the database did not send what had not changed. `commit` and `seq` name a change for ever:
    its transaction, and its place in there. Go on after it with `token`.
    """

    table: str
    op: Op
    key: Row | None
    before: Row | None
    after: Row | None
    commit: str | None
    seq: int | None
    transaction: str | None
    at_ms: int | None
    unavailable: tuple[str, ...]
    token: str

    def to_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in self.__slots__}
        return facts | {"unavailable": list(self.unavailable)}


def change_from(key: bytes | None, value: bytes, token: str) -> RecordedChange:
    """Raises ValueError, KeyError or TypeError for what is no envelope."""
    envelope = json.loads(value)
    source, op = envelope.get("source") or {}, cast(Op, envelope["op"])
    return RecordedChange(
        table=source.get("table", ""),
        op=op,
        key=None if key is None or op == TRUNCATED else json.loads(key),
        before=envelope.get("before"),
        after=envelope.get("after"),
        commit=source.get("commit"),
        seq=source.get("seq"),
        transaction=source.get("txId"),
        at_ms=source.get("ts_ms"),
        unavailable=tuple(envelope.get("unavailable", ())),
        token=token,
    )


def token_of(topic: str, offsets: Offsets) -> str:
    places = ",".join(f"{partition}:{offsets[partition]}" for partition in sorted(offsets))
    return f"{topic}@{places}"


def offsets_in(token: str, topic: str) -> dict[int, int]:
    """The next offset of each partition that the token knows."""
    found = TOKEN.fullmatch(token)
    if found is None or found["topic"] != topic:
        raise BadToken(token=token, topic=topic)
    pairs = (place.partition(":") for place in found["places"].split(","))
    return {int(partition): int(offset) for partition, _, offset in pairs}
