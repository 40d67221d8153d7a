"""The broker: opens the data directory, listens, keeps house, and stops without losing anything."""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import millstream.broker.apis  # noqa: F401 - fills the table of handlers
from millstream.base.clock import Clock
from millstream.base.disk import Disk
from millstream.base.errors import MillstreamError, Rejected
from millstream.broker.apis.api_18_api_versions import offered_versions
from millstream.broker.compactor import Compactor
from millstream.broker.config import BrokerConfig
from millstream.broker.connection import Connection
from millstream.broker.durable_state import DurableState
from millstream.broker.group_commit import GroupCommit
from millstream.broker.group_configs import GroupConfigs
from millstream.broker.group_coordinator import GroupCoordinator
from millstream.broker.groups.group_state import ConsumerGroupLimits, GroupLimits
from millstream.broker.node import Node
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.request_memory import RequestMemory
from millstream.broker.topics import (
    INTERNAL_TOPIC_IDS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Topics,
)
from millstream.broker.transaction_coordinator import TransactionCoordinator
from millstream.log.log_directory import LogDirectory, OwnershipLost
from millstream.log.partition_log import LogReadOnly

logger = logging.getLogger(__name__)

READ_THREADS = 4
# A connection without traffic is closed after this long (Kafka's connections.max.idle.ms), one
# that stopped in the middle of a request much sooner: it holds memory.
IDLE_MS_MAX = 600_000
STALLED_MS_MAX = 60_000
# How long a stop waits for answers that are still owed.
DRAIN_SECONDS_MAX = 5.0
CHECKPOINT_INTERVAL_MS = 5_000
# A producer that sends nothing for so long is forgotten (Kafka's producer.id.expiration.ms).
PRODUCER_UNUSED_MS_MAX = 24 * 3600 * 1000
# And a transactional id that nobody uses (Kafka's transactional.id.expiration.ms).
TRANSACTIONAL_ID_UNUSED_MS_MAX = 7 * 24 * 3600 * 1000
# How often timed-out transactions are looked for.
TRANSACTION_CHECK_INTERVAL_MS = 1_000


class AddressInUse(Rejected):
    def __init__(self, *, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} is in use by another process; stop that one, or listen elsewhere "
            "(--listen)"
        )
        self.host, self.port = host, port


class CannotListen(Rejected):
    def __init__(self, *, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}")
        self.host, self.port, self.reason = host, port, reason


def open_node(
    directory: LogDirectory, commit: GroupCommit, config: BrokerConfig, *, now_ms: Clock
) -> Node:
    """Everything that handlers work with, as the directory has it."""

    def internal(name: str) -> DurableState:
        topic_id = INTERNAL_TOPIC_IDS[name]
        return DurableState(directory, (name, 0), commit, topic_id=topic_id, now_ms=now_ms())

    metadata = internal(METADATA_TOPIC)
    topics = Topics(directory, metadata, config, now_ms=now_ms)
    consumer_limits = ConsumerGroupLimits(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
    )
    groups = GroupCoordinator(
        internal(OFFSETS_TOPIC),
        topics=topics,
        limits=GroupLimits(initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms),
        configs=GroupConfigs(metadata, defaults=consumer_limits, now_ms=now_ms),
        offsets_retention_ms=config.offsets_retention_ms,
        now_ms=now_ms,
    )
    topics.show_internal(OFFSETS_TOPIC, groups.partition)
    topics.when_deleted = groups.forget_topic
    topics.when_changed = groups.follow_topic
    groups.follow_topic(OFFSETS_TOPIC)
    producer_ids = ProducerIds(metadata, now_ms=now_ms)
    transactions = TransactionCoordinator(
        internal(TRANSACTIONS_TOPIC),
        topics=topics,
        groups=groups,
        producer_ids=producer_ids,
        commit=commit,
        coordinator_epoch=directory.epoch,
        timeout_ms_max=config.transaction_timeout_ms_max,
        now_ms=now_ms,
    )
    topics.show_internal(TRANSACTIONS_TOPIC, transactions.partition)
    compactor = Compactor(topics, directory, config, now_ms=now_ms)
    topics.when_closed = compactor.let_go
    directory.keep_reserve()
    return Node(
        config=config,
        directory=directory,
        commit=commit,
        metadata=metadata,
        topics=topics,
        compactor=compactor,
        groups=groups,
        producer_ids=producer_ids,
        transactions=transactions,
        request_memory=RequestMemory(config.request_bytes_max),
        read_threads=ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read"),
        now_ms=now_ms,
        api_versions=offered_versions,
    )


class BrokerServer:
    """One running broker. `start`, then `stop`; both on the loop that owns it."""

    def __init__(
        self, data_dir: Path, config: BrokerConfig, *, now_ms: Clock, disk: Disk | None = None
    ) -> None:
        self._data_dir = data_dir
        self._disk = disk
        self._config = config
        self._now_ms = now_ms
        self._server: asyncio.Server | None = None
        self._chores: list[asyncio.Task[None]] = []
        self.node: Node | None = None
        self.host = config.host
        self.port = config.port
        # Set when the broker must not go on: another process owns the directory.
        self.failed: asyncio.Event = asyncio.Event()

    async def start(self) -> None:
        """Open everything and listen. On an error nothing stays behind."""
        directory = LogDirectory(self._data_dir, disk=self._disk)
        if directory.must_recover:
            logger.info("%s: the last stop was not clean; recovering", self._data_dir)
        commit = GroupCommit(
            asyncio.get_running_loop(),
            now_ms=self._now_ms,
            unsynced_bytes_max=self._config.unsynced_bytes_max,
        )
        try:
            self.node = open_node(directory, commit, self._config, now_ms=self._now_ms)
            await self.node.topics.finish_deletions()
            await self.node.transactions.resume()
            await self._listen()
        except BaseException:
            commit.close()
            directory.close(now_ms=self._now_ms())
            raise
        self._start_chores(self.node)

    async def _listen(self) -> None:
        node = self.node
        assert node is not None
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(node), self.host, self.port, backlog=512
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(host=self.host, port=self.port) from error
            # The resolver's errors have numbers of their own, which are negative.
            is_system = error.errno is not None and error.errno > 0
            reason = os.strerror(error.errno or 0) if is_system else "no such host"
            raise CannotListen(host=self.host, port=self.port, reason=reason) from error
        self.port = self._server.sockets[0].getsockname()[1]

    # --- chores -------------------------------------------------------------------------------

    def _start_chores(self, node: Node) -> None:
        config = self._config

        async def sync_due() -> None:
            node.commit.sync_due()

        async def checkpoint() -> None:
            node.directory.check_ownership()
            node.directory.save_recovery_points()
            node.directory.keep_reserve()

        async def retention() -> None:
            self._apply_retention(node)

        async def compaction() -> None:
            await node.compactor.clean_all()

        async def connections() -> None:
            self.close_idle(node, now_ms=self._now_ms())

        async def state() -> None:
            node.metadata.rewrite_if_worth_it(now_ms=self._now_ms())
            node.groups.rewrite_if_worth_it()
            node.transactions.rewrite_if_worth_it()
            await node.groups.expire()
            await node.transactions.forget_unused(unused_ms=TRANSACTIONAL_ID_UNUSED_MS_MAX)

        async def transactions() -> None:
            await node.transactions.resume()
            await node.transactions.abort_timed_out()

        sync_ms = max(10, min(config.relaxed_sync_interval_ms // 4, 250))
        for chore, interval_ms in (
            (sync_due, sync_ms),
            (checkpoint, CHECKPOINT_INTERVAL_MS),
            (retention, config.retention_check_interval_ms),
            (compaction, config.compaction_check_interval_ms),
            (connections, STALLED_MS_MAX // 6),
            (state, config.retention_check_interval_ms),
            (transactions, TRANSACTION_CHECK_INTERVAL_MS),
        ):
            self._chores.append(asyncio.ensure_future(self._repeat(chore, interval_ms / 1000)))

    async def _repeat(self, chore: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Do a chore again and again. What fails today may work tomorrow; losing the data
        directory does not."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await chore()
            except OwnershipLost as error:
                logger.critical("%s", error)
                self.failed.set()
                return
            except MillstreamError as error:
                logger.error("%s", error)
            except Exception:
                logger.exception("a chore failed; it is tried again in %s s", seconds)

    def _apply_retention(self, node: Node) -> None:
        now_ms = self._now_ms()
        for topic in node.topics:
            for partition in topic.partitions:
                try:
                    if not topic.is_internal:
                        partition.log.apply_retention(now_ms=now_ms)
                except LogReadOnly:  # reported when it became so
                    pass
                except MillstreamError as error:
                    logger.error(
                        "%s: retention is tried again later: %s", partition.log.name, error
                    )
                partition.log.producers.expire(now_ms=now_ms, unused_ms=PRODUCER_UNUSED_MS_MAX)
                partition.settle()

    def close_idle(self, node: Node, *, now_ms: int) -> None:
        """Close connections from which nothing came for too long, unless we made them wait."""
        for connection in tuple(node.connections):
            if connection.has_open_requests or connection.waits_for_us:
                continue
            quiet_ms = now_ms - connection.active_ms
            if connection.is_in_frame and quiet_ms > STALLED_MS_MAX:
                reason = "silent in the middle of a request"
            elif quiet_ms > IDLE_MS_MAX:
                reason = "idle"
            else:
                continue
            logger.warning(
                "connection %s closed: %s for %d s", connection.peer, reason, quiet_ms // 1000
            )
            connection.close()

    # --- stop ---------------------------------------------------------------------------------

    async def stop(self) -> bool:
        """Answer what is owed, sync, close. True if the next start needs no recovery."""
        node = self.node
        if node is None:
            return True
        if self._server is not None:
            self._server.close()
        await node.compactor.stop()
        for chore in self._chores:
            chore.cancel()
        for connection in tuple(node.connections):
            connection.stop_reading()
        await self._drain(node)
        for connection in tuple(node.connections):
            connection.close()
        node.commit.close()
        await asyncio.sleep(0)  # the last syncs report back
        node.read_threads.shutdown(wait=True, cancel_futures=True)
        if self.failed.is_set():  # the directory is another's: leave it as it is
            node.directory.abandon()
            return False
        return node.directory.close(now_ms=self._now_ms())

    async def _drain(self, node: Node) -> None:
        """Wait until nothing is unsynced and no change is half done, so that all have answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS_MAX
        while (node.commit.has_waiting or node.work) and loop.time() < deadline:  # noqa: ASYNC110 - two threads
            await asyncio.sleep(0.005)
