"""What one client can make the server do: every bound of it, in one place. Pure."""

from dataclasses import dataclass
from typing import Final

from millstream.base.quantity import DAY_MS, KIB, MIB, SECOND_MS

# Uvicorn's own bound of a request line is 64 KiB; most proxies cut at 8.
URL_BYTES_MAX: Final = 8 * KIB
IDEMPOTENCY_KEY_CHARACTERS_MAX: Final = 255
# While its rows are made, JSON takes up to 140 times its bytes: one body of 8 MiB 1.1 GiB, sixteen
# small ones 140 MiB. Two large ones at once would gain little: Python runs one at a time.
LARGE_BODIES_MAX: Final = 1
SMALL_BODY_BYTES_MAX: Final = 64 * KIB
# In the console: each has a consumer of its own, and a thread while it waits.
TAILS_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`body_ms_max`: how long a body may take to arrive. `threads_max`: calls into views at
    one time, and as many to the broker; `waits_max`: reads that wait for a position. Each kind has
    threads of its own, so that it holds up no other. `idempotency_*`: docs/formats/http_keys.md."""

    body_bytes_max: int = 8 * MIB
    body_ms_max: int = 30 * SECOND_MS
    rows_max: int = 10_000
    limit_max: int = 10_000
    timeout_ms_max: int = 60 * SECOND_MS
    requests_max: int = 512
    threads_max: int = 16
    waits_max: int = 64
    feeds_max: int = 256
    heartbeat_ms: int = 15 * SECOND_MS
    idempotency_ms: int = DAY_MS
    idempotency_bytes_max: int = 256 * MIB
