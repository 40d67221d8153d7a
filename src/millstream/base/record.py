"""One record, as an application sees it. The log stores batches of them (log/record_batch.py)."""

from dataclasses import dataclass
from typing import TypeAlias

Header: TypeAlias = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A key and a value, with headers; `offset` and `timestamp_ms` are set once it is stored."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = -1
    offset: int = -1
