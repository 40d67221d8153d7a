"""Changes as records: Debezium's envelope in JSON, and our place in the log with it. Pure.

    {"before":null,"after":{"id":1},"source":{"version":"0.1.0","connector":"postgresql",
     "name":"shop","db":"shop","schema":"public","table":"orders","schema_version":1,
     "ts_ms":1760000000000,"txId":"731","commit":"0/15D6F40","lsn":22900544,"seq":0},
     "op":"c","ts_ms":1760000000123}

`source.ts_ms` is when the database committed, `ts_ms` when the change was read. Rows arrive as JSON
and are not looked into: what is the same for a table or a transaction is encoded once, and a
record is one join. docs/formats/capture_envelope.md tells all of it.
"""

import base64
import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from millstream._version import __version__
from millstream.capture.change import (
    DELETED,
    MESSAGE,
    TRUNCATED,
    CapturedTable,
    Change,
    Message,
    Transaction,
)
from millstream.capture.table_names import split_name

# A compacted topic takes no record without a key, and no row has a key without columns.
TRUNCATED_KEY = b"{}"
NULL, BEFORE, AFTER = b"null", b'{"before":', b',"after":'
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# What stands between a change's number in its transaction and the time when it was read.
OPS = {op: b'},"op":"%b","ts_ms":' % op.encode() for op in "cudrtm"}


class Encoded(NamedTuple):
    """Key and value of one record."""

    key: bytes | None
    value: bytes | None


class Place:
    """What all records of one transaction say of it. Rows of the initial load have none: they were
    so when the stream was at `commit`."""

    __slots__ = ("at_us", "commit", "middle", "read", "read_ms", "transaction_id")

    def __init__(
        self,
        commit: str,
        *,
        at_ms: int,
        read_ms: int,
        transaction_id: str | None = None,
        facts: bytes = b"",
        at_us: int = 0,
    ) -> None:
        self.commit, self.transaction_id = commit, transaction_id
        self.at_us, self.read_ms = at_us or at_ms * 1_000, read_ms
        transaction = NULL if transaction_id is None else _quoted(transaction_id)
        known = (at_ms, transaction, _quoted(commit), facts)
        self.middle = b'"ts_ms":%d,"txId":%b,"commit":%b%b,"seq":' % known
        self.read = b"%d" % read_ms


class Envelope:
    """Makes the records of one capture."""

    def __init__(self, *, capture: str, kind: str, database: str) -> None:
        self._about = {
            "version": __version__,
            "connector": kind,
            "name": capture,
            "db": database,
        }

    def source_of(self, table: CapturedTable) -> bytes:
        """The first half of `source`: the same for every record of a table's version."""
        named = {**_split_name(table.name), "schema_version": table.version}
        return b',"source":{%b,' % _inner({**self._about, **named})

    def message(self, message: Message, place: Place, seq: int) -> Encoded:
        """What an application wrote into the database's log: its bytes as base64."""
        content = base64.b64encode(message.content).decode()
        key = _json({"prefix": message.prefix})
        told = _json({"prefix": message.prefix, "content": content})
        half = b'{"source":{%b,' % _inner({**self._about, "schema": "", "table": ""})
        rest = (place.middle, b"%d" % seq, OPS[MESSAGE], place.read, b',"message":', told, b"}")
        return Encoded(key, b"".join((half, *rest)))


def place_of(transaction: Transaction, *, read_ms: int) -> Place:
    commit, _, number, at_ms, _, _, facts, at_us = transaction
    return Place(
        commit, at_ms=at_ms, read_ms=read_ms, transaction_id=number, facts=facts, at_us=at_us
    )


def value_of(change: Change, source: bytes, place: Place, seq: int) -> bytes:
    _, op, _, before, after, unavailable = change
    tail = b',"unavailable":%b}' % _json(list(unavailable)) if unavailable else b"}"
    rows = (BEFORE, before or NULL, AFTER, after or NULL)
    return b"".join((*rows, source, place.middle, b"%d" % seq, OPS[op], place.read, tail))


def key_of(change: Change) -> bytes | None:
    if change.op == TRUNCATED and change.table.key:
        return TRUNCATED_KEY
    return change.key


def has_tombstone(change: Change) -> bool:
    """A null value behind a delete, for compaction: with it, nothing is left of the key."""
    return change.op == DELETED and change.key is not None


def begin_of(transaction: Transaction) -> Encoded:
    return _boundary(transaction, b'"BEGIN"', b'"event_count":null,"data_collections":null')


def end_of(transaction: Transaction, counts: Mapping[str, int]) -> Encoded:
    """`counts`: how many changes of each table there were."""
    tables = b",".join(
        b'{"data_collection":%b,"event_count":%d}' % (_quoted(name), count)
        for name, count in counts.items()
    )
    counted = b'"event_count":%d,"data_collections":[%b]' % (sum(counts.values()), tables)
    return _boundary(transaction, b'"END"', counted)


def _boundary(transaction: Transaction, status: bytes, counted: bytes) -> Encoded:
    key = b'{"id":%b}' % _quoted(f"{transaction.id}:{transaction.commit}")
    when = b'"ts_ms":%d,"commit":%b' % (transaction.at_ms, _quoted(transaction.commit))
    return Encoded(key, b'{"status":%b,%b,%b,%b}' % (status, key[1:-1], counted, when))


def _split_name(name: str) -> dict[str, str]:
    schema, table = split_name(name)
    return {"schema": schema, "table": table}


def facts_at(position: str) -> bytes:
    """Of rows that were read: PostgreSQL's positions as the number that Debezium gives."""
    high, slash, low = position.partition("/")
    try:
        return b',"lsn":%d' % ((int(high, 16) << 32) + int(low, 16)) if slash else b""
    except ValueError:
        return b""


def _inner(facts: Mapping[str, Any]) -> bytes:
    """An object without its braces."""
    return _json(facts)[1:-1]


def _json(found: Any) -> bytes:
    return _encode(found).encode()


def _quoted(text: str) -> bytes:
    return encode_basestring(text).encode()
