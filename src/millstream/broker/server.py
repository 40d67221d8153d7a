"""The broker: opens the data directory, listens, keeps house, and stops without losing anything."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import millstream.broker.apis  # noqa: F401 - fills the table of handlers
from millstream.base.clock import Clock
from millstream.base.disk import Disk, DiskFull
from millstream.base.errors import MillstreamError
from millstream.base.near_names import some_of
from millstream.base.open_files import connections_possible
from millstream.broker.access.acceptor import Acceptor
from millstream.broker.access.access_control import AccessControl
from millstream.broker.access.admission import Admission
from millstream.broker.access.client_quotas import ClientQuotas
from millstream.broker.access.complaints import Complaints
from millstream.broker.access.connection_login import LOGIN_MS_MAX
from millstream.broker.access.logins import Logins
from millstream.broker.access.protection import Protection
from millstream.broker.apis.api_18_api_versions import offered_versions
from millstream.broker.compactor import Compactor
from millstream.broker.config import BrokerConfig
from millstream.broker.connection import Connection
from millstream.broker.durable_state import DurableState
from millstream.broker.group_commit import GroupCommit
from millstream.broker.group_configs import GroupConfigs
from millstream.broker.group_coordinator import GroupCoordinator
from millstream.broker.groups.group_state import GroupLimits
from millstream.broker.node import Node
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.request_memory import RequestMemory
from millstream.broker.sharing.dead_letters import DeadLetterOffice
from millstream.broker.sharing.share_partitions import SharePartitions
from millstream.broker.sharing.share_state_log import ShareStateLog
from millstream.broker.topics import (
    INTERNAL_TOPIC_IDS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    Topics,
)
from millstream.broker.transaction_coordinator import TransactionCoordinator
from millstream.log.log_directory import LogDirectory, OwnershipLost
from millstream.log.partition_log import LogReadOnly

if TYPE_CHECKING:
    from millstream.broker.metrics.endpoint import MetricsEndpoint

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
# Every acknowledgement grows it, and all of it is read at the start.
SHARE_STATE_CHECK_INTERVAL_MS = 60_000
# How often the free space of the disk is looked at.
SPACE_CHECK_INTERVAL_MS = 1_000
# How often a trouble that lasts is said again.
TROUBLE_LINE_INTERVAL_MS = 60_000
# How often the end of the certificate is looked at.
CERTIFICATE_CHECK_INTERVAL_MS = 24 * 3600 * 1000


def open_node(
    directory: LogDirectory, commit: GroupCommit, config: BrokerConfig, *, now_ms: Clock
) -> Node:
    """Everything that handlers work with, as the directory has it."""

    def internal(name: str) -> DurableState:
        topic_id = INTERNAL_TOPIC_IDS[name]
        return DurableState(directory, (name, 0), commit, topic_id=topic_id, now_ms=now_ms())

    metadata = internal(METADATA_TOPIC)
    complaints = Complaints(now_ms=now_ms)
    access = AccessControl(
        metadata,
        is_on=config.is_authorizing,
        super_users=config.super_users,
        is_allowed_without_rule=config.allow_without_acl,
        now_ms=now_ms,
    )
    topics = Topics(directory, metadata, config, now_ms=now_ms)
    groups = GroupCoordinator(
        internal(OFFSETS_TOPIC),
        topics=topics,
        limits=GroupLimits(initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms),
        configs=GroupConfigs(metadata, config, now_ms=now_ms),
        offsets_retention_ms=config.offsets_retention_ms,
        now_ms=now_ms,
    )
    topics.show_internal(OFFSETS_TOPIC, groups.partition)
    topics.when_changed = groups.follow_topic
    groups.follow_topic(OFFSETS_TOPIC)
    read_threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read")
    share_partitions = SharePartitions(
        ShareStateLog(directory, commit, now_ms=now_ms()),
        topics=topics,
        configs=groups.configs,
        dead_letters=DeadLetterOffice(
            topics, commit, config, read_threads=read_threads, now_ms=now_ms
        ),
        now_ms=now_ms,
    )
    topics.show_internal(SHARE_STATE_TOPIC, share_partitions.partition)
    groups.shares.join_records(share_partitions)

    async def forget_topic(name: str) -> None:
        await groups.forget_topic(name)
        await share_partitions.forget_deleted_topics()

    topics.when_deleted = forget_topic
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
        access=access,
        complaints=complaints,
        admission=_admission(config),
        logins=Logins(
            metadata,
            mechanisms=config.sasl_mechanisms,
            session_ms=config.sasl_session_ms,
            complaints=complaints,
            now_ms=now_ms,
        ),
        quotas=ClientQuotas(metadata, now_ms=now_ms),
        topics=topics,
        compactor=compactor,
        groups=groups,
        share_partitions=share_partitions,
        producer_ids=producer_ids,
        transactions=transactions,
        request_memory=RequestMemory(config.request_bytes_max),
        read_threads=read_threads,
        now_ms=now_ms,
        api_versions=offered_versions,
    )


def _admission(config: BrokerConfig) -> Admission:
    """As many clients as the settings allow, and as this process has descriptors for."""
    total = min(config.connections_max, connections_possible())
    if total < config.connections_max:
        logger.warning(
            "%d connections at most, not connections_max=%d: this process may open too few files "
            "(raise its limit: ulimit -n)",
            total,
            config.connections_max,
        )
    return Admission(
        connections_max=total,
        per_address_max=max(
            1, config.connections_per_address_max * total // config.connections_max
        ),
        must_log_in=bool(config.sasl_mechanisms),
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
        self._protection = Protection(config, now_ms=now_ms)
        self._acceptor: Acceptor | None = None
        self._metrics: MetricsEndpoint | None = None
        self.metrics_url: str | None = None
        self._chores: list[asyncio.Task[None]] = []
        self.node: Node | None = None
        self.host = config.host
        self.port = config.port
        # Set when the broker must not go on: another process owns the directory.
        self.failed: asyncio.Event = asyncio.Event()

    async def start(self, *, must_listen: bool = True) -> None:
        """Open everything and listen. On an error nothing stays behind."""
        if must_listen:
            self._protection.check()
            self._protection.read_certificates()
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
            await self.node.logins.keep_secret()
            if must_listen:
                await self._serve_metrics(self.node)
                await self._listen(self.node)
        except BaseException:
            await self._stop_metrics()
            commit.close()
            directory.close(now_ms=self._now_ms())
            raise
        self._start_chores(self.node)

    async def _listen(self, node: Node) -> None:
        self._acceptor = Acceptor(
            partial(Connection, node),
            admission=node.admission,
            complaints=node.complaints,
            tls=self._protection.context,
        )
        await self._acceptor.listen(self.host, self.port)
        self.port = self._acceptor.port

    def renew_certificates(self) -> None:
        """Read them again; connections that are there go on with the old ones."""
        try:
            self._protection.read_certificates()
        except MillstreamError as error:
            logger.error("the certificate stays as it was: %s", error)
            return
        if self._acceptor is not None:
            self._acceptor.tls = self._protection.context
            logger.info("the certificates were read again")

    async def _serve_metrics(self, node: Node) -> None:
        if self._config.metrics_listen is None:
            return
        # Here, as its import takes as long as the rest of the broker's.
        from millstream.broker.metrics.endpoint import MetricsEndpoint, check_may_listen

        host, port = self._config.metrics_listen
        check_may_listen(host, port, open_metrics=self._config.open_metrics)
        self._metrics = MetricsEndpoint(node, is_healthy=lambda: not self.failed.is_set())
        self.metrics_url = await self._metrics.start(host, port)

    async def _stop_metrics(self) -> None:
        if self._metrics is not None:
            await self._metrics.stop()

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
            node.quotas.forget_idle()
            await node.groups.expire()
            await node.transactions.forget_unused(unused_ms=TRANSACTIONAL_ID_UNUSED_MS_MAX)

        async def share_state() -> None:
            node.share_partitions.rewrite_if_worth_it()

        async def space() -> None:
            line = node.directory.look_at_space(now_ms=self._now_ms())
            if line is not None:
                is_full = node.directory.space.is_full
                logger.log(logging.ERROR if is_full else logging.WARNING, "%s", line)

        async def troubles() -> None:
            for line in lasting_troubles(node.directory):
                logger.error("%s", line)

        async def certificates() -> None:
            self._protection.warn_of_expiry()

        async def transactions() -> None:
            await node.transactions.resume()
            await node.transactions.abort_timed_out()

        sync_ms = max(10, min(config.relaxed_sync_interval_ms // 4, 250))
        for chore, interval_ms in (
            (sync_due, sync_ms),
            (checkpoint, CHECKPOINT_INTERVAL_MS),
            (retention, config.retention_check_interval_ms),
            (compaction, config.compaction_check_interval_ms),
            (connections, min(STALLED_MS_MAX, config.first_request_ms_max) // 6),
            (state, config.retention_check_interval_ms),
            (share_state, SHARE_STATE_CHECK_INTERVAL_MS),
            (transactions, TRANSACTION_CHECK_INTERVAL_MS),
            (space, SPACE_CHECK_INTERVAL_MS),
            (troubles, TROUBLE_LINE_INTERVAL_MS),
            (certificates, CERTIFICATE_CHECK_INTERVAL_MS),
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
            except DiskFull:  # said once a minute, with the rest
                if self.node is not None:
                    self.node.directory.space.note_refusal()
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
                        before_bytes = partition.log.size_bytes
                        dropped = partition.log.apply_retention(now_ms=now_ms)
                        node.metrics.retention_segments += dropped
                        node.metrics.retention_bytes += before_bytes - partition.log.size_bytes
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
        first_request_ms_max = node.config.first_request_ms_max
        for connection in tuple(node.connections):
            if connection.is_closing:  # since the last look, and its client takes nothing
                connection.abort()
                continue
            quiet_ms = now_ms - connection.active_ms
            waits_long = connection.is_not_read and quiet_ms > STALLED_MS_MAX
            has_gone = (connection.waits_for_us or waits_long) and connection.has_hung_up
            if not has_gone and (connection.has_open_requests or connection.waits_for_us):
                continue
            if has_gone:
                reason = "its client has gone; silent"
            elif not connection.login.is_done and now_ms - connection.made_ms > LOGIN_MS_MAX:
                reason = "without a login"
            elif not connection.has_asked and now_ms - connection.made_ms > first_request_ms_max:
                reason = "without a request"
            elif connection.is_in_frame and quiet_ms > STALLED_MS_MAX:
                reason = "silent in the middle of a request"
            elif quiet_ms > IDLE_MS_MAX:
                reason = "idle"
            else:
                continue
            node.metrics.connections_idle_closed += 1
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
        if self._acceptor is not None:
            self._acceptor.close()
        await self._stop_metrics()
        await node.compactor.stop()
        for chore in self._chores:
            chore.cancel()
        for connection in tuple(node.connections):
            connection.stop_reading()
        await self._drain(node)
        for connection in tuple(node.connections):
            connection.close()
        node.share_partitions.stop()
        node.commit.close()
        await asyncio.sleep(0)  # the last syncs report back
        node.read_threads.shutdown(wait=True, cancel_futures=True)
        node.logins.close()
        if self.failed.is_set():  # the directory is another's: leave it as it is
            node.directory.abandon()
            return False
        return node.directory.close(now_ms=self._now_ms())

    async def _drain(self, node: Node) -> None:
        """Wait until nothing is unsynced and no change is half done, so that all have answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS_MAX
        while _is_busy(node) and loop.time() < deadline:  # noqa: ASYNC110 - two threads
            await asyncio.sleep(0.005)


def _is_busy(node: Node) -> bool:
    return node.commit.has_waiting or bool(node.work) or node.share_partitions.is_burying


def lasting_troubles(directory: LogDirectory) -> list[str]:
    """What was said when it happened, and still is so: a line each."""
    read_only = [log.name for log in directory.read_only]
    damaged = [log.name for log in directory.damaged]
    lines = []
    if read_only:
        lines.append(
            f"partitions that take no records since a write failed: {some_of(read_only)}; check "
            "the disk, then restart the broker"
        )
    if damaged:
        lines.append(
            f"partitions with damaged records, which are not served: {some_of(damaged)}; restore "
            "their files from a copy, and check the disk"
        )
    return lines
