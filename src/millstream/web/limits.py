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
# Of paths that need no token: a token and the place to go to then.
OPEN_BODY_BYTES_MAX: Final = 2 * URL_BYTES_MAX
# Their requests at one time, once their bodies are there: they have slots of their own. One whose
# token is wrong is answered after a second, and gives its slot away before.
OPEN_REQUESTS_MAX: Final = 256
OPEN_REQUESTS_OF_ADDRESS_MAX: Final = 64
# Of the files that the system allows, so many are for the application, not for connections.
FILES_KEPT_MIN: Final = 96
CONNECTIONS_MIN: Final = 16


def connections_for(connections_max: int, files_max: int) -> int:
    """As many as wanted, unless the files that are left to the application would be too few."""
    kept = max(FILES_KEPT_MIN, files_max // 4)
    return max(CONNECTIONS_MIN, min(connections_max, files_max - kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`head_ms_max`: how long the head of a request may take to arrive, and the body of one that
    needs no token; `body_ms_max`: any other body. `threads_max`: calls into views at one time, and
    as many to the broker; `waits_max`: reads that wait for a position. Each kind has threads of its
    own, so that it holds up no other. `idempotency_*`: docs/formats/http_keys.md."""

    connections_max: int = 4_096
    connections_per_address_max: int = 1_024
    head_ms_max: int = 10 * SECOND_MS
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
