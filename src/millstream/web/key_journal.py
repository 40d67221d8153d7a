"""Which idempotency keys were used, and where their rows are: the book, and its record. Pure.

A record of the topic `_http_keys.<app>`, one for each key (docs/formats/http_keys.md):

    key    the idempotency key, UTF-8
    value  {"topic": "clicks", "request": "<mark>:<print>", "receipts": [[0, 41], [0, 42]]}

`receipts` are partition and offset of each row, in the order of the request. The print is an
HMAC-SHA-256 of the body by a key that only the memory of a process has, and `mark` names that key:
rows may be deleted while the record is still there, and a hash of few possible rows is found by
trying. So another process does not know whether a repeat has the same rows.
"""

import hashlib
import hmac
import json
from collections import OrderedDict
from dataclasses import dataclass

from millstream.base.errors import Corrupt
from millstream.queues.outbox import Receipt
from millstream.web.problems import Problem

# What Python needs for an entry beside the bytes of its key and value.
ENTRY_BYTES = 250
MARK_LENGTH = 16


class DamagedKeyRecord(Corrupt):
    def __init__(self, *, topic: str, offset: int) -> None:
        super().__init__(
            f"{topic}: the record at offset {offset} is none of an idempotency key. Only the HTTP "
            "server writes there: delete the topic if its keys are not needed any more"
        )
        self.topic, self.offset = topic, offset


@dataclass(frozen=True, slots=True)
class KeyUse:
    """What was published under a key."""

    topic: str
    request: str
    receipts: tuple[Receipt, ...]

    def to_value(self) -> bytes:
        places = [[one.partition, one.offset] for one in self.receipts]
        found = {"topic": self.topic, "request": self.request, "receipts": places}
        return json.dumps(found, separators=(",", ":")).encode()


def use_from(value: bytes) -> KeyUse:
    """Raises ValueError, KeyError or TypeError for what is no such record."""
    found = json.loads(value)
    topic = str(found["topic"])
    receipts = (Receipt(topic, int(number), int(offset)) for number, offset in found["receipts"])
    return KeyUse(topic, str(found["request"]), tuple(receipts))


class RequestPrinter:
    """Tells bodies of requests apart, in one process."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._mark = hashlib.sha256(b"mark" + key).hexdigest()[:MARK_LENGTH]

    def print_of(self, body: bytes) -> str:
        return f"{self._mark}:{hmac.digest(self._key, body, 'sha256').hex()}"


def require_same(key: str, use: KeyUse, *, topic: str, request: str) -> None:
    is_same_printer = _mark_of(use.request) == _mark_of(request)
    if use.topic != topic or (is_same_printer and use.request != request):
        raise Problem(
            "key-used-otherwise",
            f"Idempotency-Key {key!r} was used for other rows, into topic {use.topic}",
        )


def _mark_of(request: str) -> str:
    """Of records of former versions, which have the SHA-256 of the body: nothing."""
    return request.rpartition(":")[0]


class KeyBook:
    """The uses of at most `keep_ms`, oldest first. Refuses new ones rather than forget early."""

    def __init__(self, *, keep_ms: int, bytes_max: int) -> None:
        self.keep_ms, self.bytes_max = keep_ms, bytes_max
        self.size_bytes = 0
        self._uses: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._uses)

    def add(self, key: str, value: bytes, *, at_ms: int) -> None:
        if key in self._uses:
            self._drop(key)
        self._uses[key] = (at_ms, value)
        self.size_bytes += _size(key, value)

    def find(self, key: str) -> KeyUse | None:
        found = self._uses.get(key)
        return None if found is None else use_from(found[1])

    def forget_before(self, now_ms: int) -> None:
        while self._uses:
            key, (at_ms, _) = next(iter(self._uses.items()))
            if now_ms - at_ms <= self.keep_ms:
                return
            self._drop(key)

    def require_room(self) -> None:
        if self.size_bytes >= self.bytes_max:
            raise Problem(
                "too-many",
                f"{len(self._uses)} idempotency keys are kept, {self.size_bytes} bytes of them: no "
                "room for more until old ones end. Publish larger batches, or raise "
                "idempotency_bytes_max",
            )

    def _drop(self, key: str) -> None:
        _, value = self._uses.pop(key)
        self.size_bytes -= _size(key, value)


def _size(key: str, value: bytes) -> int:
    return ENTRY_BYTES + len(key) + len(value)
