"""Runs a broker in this process until it is told to stop: settings in, exit code out.

The clock is asked for here, and handed down; so are the event loop and the process's limits.
`millstream broker` and the child of `embedded.Broker` are its two callers.
"""

import asyncio
import contextlib
import ctypes
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.base.clock import system_clock
from millstream.base.diagnostics import set_up_text
from millstream.base.file_limit import raise_file_limit
from millstream.broker.config import BrokerConfig
from millstream.broker.node import Node
from millstream.broker.security.sasl_session import LIFETIME_UNLIMITED
from millstream.broker.server import BrokerServer
from millstream.settings import BrokerSettings

if TYPE_CHECKING:
    from millstream.broker.security.tls import TlsFiles

logger = logging.getLogger(__name__)

EXIT_CLEAN = 0
# The broker stopped by itself: another process took over its data directory.
EXIT_LOST_DIRECTORY = 74


def broker_config(settings: BrokerSettings) -> BrokerConfig:
    return BrokerConfig(
        host=settings.listen.host,
        port=settings.listen.port,
        advertised=_advertised(settings),
        tls=_tls_files(settings),
        sasl_mechanisms=settings.sasl,
        sasl_session_ms=max(settings.sasl_session_ms, LIFETIME_UNLIMITED),
        open_listeners=settings.open_listeners,
        metrics_listen=_metrics_listen(settings),
        open_metrics=settings.open_metrics,
        is_authorizing=_is_authorizing(settings),
        super_users=settings.super_users,
        allow_without_acl=settings.allow_without_acl,
        is_relaxed=settings.durability == "relaxed",
        relaxed_sync_interval_ms=settings.relaxed_sync_interval_ms,
        auto_create_topics=settings.auto_create_topics,
        auto_create_topics_per_request_max=settings.auto_create_topics_per_request_max,
        auto_create_partitions_max=settings.auto_create_partitions_max,
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
        connections_per_address_max=_per_address(settings),
        first_request_ms_max=settings.first_request_ms_max,
        requests_in_flight_max=settings.requests_in_flight_max,
        request_bytes_max=settings.request_bytes_max,
        unsynced_bytes_max=settings.unsynced_bytes_max,
        offsets_retention_ms=settings.offsets_retention_ms,
        group_initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        group_consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        group_share_session_timeout_ms=settings.group_share_session_timeout_ms,
        group_share_heartbeat_interval_ms=settings.group_share_heartbeat_interval_ms,
        group_share_record_lock_ms=settings.group_share_record_lock_ms,
    )


def _per_address(settings: BrokerSettings) -> int:
    """One address must not take all connections: a quarter, if nothing else is said."""
    return settings.connections_per_address_max or max(settings.connections_max // 4, 1)


def _is_authorizing(settings: BrokerSettings) -> bool:
    """Rules are for who is known: without a name everybody is the same."""
    knows_clients = bool(settings.sasl) or settings.tls_client_ca is not None
    return knows_clients if settings.authorization == "auto" else settings.authorization == "on"


def _advertised(settings: BrokerSettings) -> tuple[str, int] | None:
    told = settings.advertise
    return None if told is None else (told.host, told.port)


def _metrics_listen(settings: BrokerSettings) -> tuple[str, int] | None:
    where = settings.metrics_listen
    return None if where is None else (where.host, where.port)


def _tls_files(settings: BrokerSettings) -> "TlsFiles | None":
    """A client certificate that is asked for is required: who has none gets no further."""
    certificate, key, ca = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
    if certificate is None or key is None:
        return None
    from millstream.broker.security.tls import ClientCertificates, TlsFiles

    asks = ClientCertificates.NONE if ca is None else ClientCertificates.REQUIRED
    return TlsFiles(certificate=certificate, key=key, ca=ca, client_certificates=asks)


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
    raise_file_limit()  # each connection is one, and the log keeps as many files open as it may
    _keep_freed_memory()
    with _event_loop() as loop:
        return loop.run_until_complete(_serve(settings, when_ready, until_closed))


def change_stopped(settings: BrokerSettings, work: Callable[[Node], Awaitable[None]]) -> None:
    """Open the data of a broker that does not run, change something, and close it cleanly."""

    async def open_and_work() -> None:
        server = BrokerServer(settings.data, broker_config(settings), now_ms=system_clock)
        await server.start(must_listen=False)
        assert server.node is not None
        try:
            await work(server.node)
        finally:
            await server.stop()

    with _event_loop() as loop:
        loop.run_until_complete(open_and_work())


async def _serve(
    settings: BrokerSettings, when_ready: Callable[[BrokerServer], None], until_closed: Any
) -> int:
    loop = asyncio.get_running_loop()
    must_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, must_stop.set)
    server = BrokerServer(settings.data, broker_config(settings), now_ms=system_clock)
    await server.start()
    if settings.tls_certificate is not None:  # else it ends us, as a closed terminal should
        loop.add_signal_handler(signal.SIGHUP, server.renew_certificates)
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
    set_up_text("%(asctime)s %(levelname)s %(name)s: %(message)s", level=level.upper())
