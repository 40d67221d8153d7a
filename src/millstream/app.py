"""Wires a running platform from its settings: the only file that knows every package.

For now that is the broker. Time is asked for here, and handed down.
"""

import asyncio
import contextlib
import ctypes
import logging
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from millstream.base.clock import system_clock
from millstream.broker.config import BrokerConfig
from millstream.broker.server import BrokerServer
from millstream.settings import BrokerSettings

logger = logging.getLogger(__name__)

EXIT_CLEAN = 0
# The broker stopped by itself: another process took over its data directory.
EXIT_LOST_DIRECTORY = 74


def broker_config(settings: BrokerSettings) -> BrokerConfig:
    return BrokerConfig(
        host=settings.listen.host,
        port=settings.listen.port,
        is_relaxed=settings.durability == "relaxed",
        relaxed_sync_interval_ms=settings.relaxed_sync_interval_ms,
        auto_create_topics=settings.auto_create_topics,
        default_partitions=settings.default_partitions,
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.retention_bytes,
        retention_check_interval_ms=settings.retention_check_interval_ms,
        compaction_check_interval_ms=settings.compaction_check_interval_ms,
        compaction_map_bytes=settings.compaction_map_bytes,
        compaction_bytes_per_second=settings.compaction_bytes_per_second,
        message_bytes_max=settings.message_bytes_max,
        frame_bytes_max=settings.frame_bytes_max,
        connections_max=settings.connections_max,
        requests_in_flight_max=settings.requests_in_flight_max,
        request_bytes_max=settings.request_bytes_max,
        unsynced_bytes_max=settings.unsynced_bytes_max,
        offsets_retention_ms=settings.offsets_retention_ms,
        group_initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        group_consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
    )


def run_broker(
    settings: BrokerSettings,
    *,
    when_ready: Callable[[BrokerServer], None],
    until_closed: Any = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT, or until the file `until_closed` ends.

    Returns the exit code. `when_ready` is called once, when clients can connect.
    """
    _set_up_diagnostics(settings.log_level)
    _raise_file_limit()
    _keep_freed_memory()
    with _event_loop() as loop:
        return loop.run_until_complete(_serve(settings, when_ready, until_closed))


async def _serve(
    settings: BrokerSettings, when_ready: Callable[[BrokerServer], None], until_closed: Any
) -> int:
    loop = asyncio.get_running_loop()
    must_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, must_stop.set)
    server = BrokerServer(settings.data, broker_config(settings), now_ms=system_clock)
    await server.start()
    if until_closed is not None:
        loop.add_reader(until_closed, must_stop.set)
    when_ready(server)
    stop = asyncio.ensure_future(must_stop.wait())
    failed = asyncio.ensure_future(server.failed.wait())
    await asyncio.wait((stop, failed), return_when=asyncio.FIRST_COMPLETED)
    failed.cancel()
    stop.cancel()
    is_clean = await server.stop()
    if not is_clean:
        logger.error("stopped, but not everything could be written; the next start recovers")
    return EXIT_LOST_DIRECTORY if server.failed.is_set() else EXIT_CLEAN


@contextlib.contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """uvloop where there is one, else asyncio's own."""
    loop: asyncio.AbstractEventLoop
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    try:
        yield loop
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _raise_file_limit() -> None:
    """Each segment has three files open, each connection one: take what the system gives."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems name a limit they do not give
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# mallopt(3) of glibc, and its two parameters.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, POOLED_BYTES_MAX = 32 << 20, 16 << 20


def _keep_freed_memory() -> None:
    """Answers to Fetch need large buffers for a short time. By default glibc gives each back to
    the system, and the fresh pages of the next one cost as much CPU as the rest of the answer:
    keep some instead (`bench/throughput.py`, consume from 12 partitions: half the broker's CPU).
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library: its own ways
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_MMAP_THRESHOLD, POOLED_BYTES_MAX)


def _set_up_diagnostics(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
