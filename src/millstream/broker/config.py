"""What the broker is told at its start. `running.py` fills it from the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.broker.security.sasl_session import LIFETIME_UNLIMITED
from millstream.log.config import INT64_MAX

if TYPE_CHECKING:  # it takes a while to import, and most brokers do without
    from millstream.broker.security.tls import TlsFiles

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Static configuration; what topics inherit can be changed later (topic_config.py)."""

    host: str = "127.0.0.1"
    port: int = 9092
    # What clients are told to connect to, if not the address that they came by.
    advertised: tuple[str, int] | None = None
    tls: TlsFiles | None = None
    sasl_mechanisms: tuple[str, ...] = ()
    sasl_session_ms: int = LIFETIME_UNLIMITED
    open_listeners: str = ""
    # Whether rules (ACLs) decide who may do what. Without them whoever connects may do all.
    is_authorizing: bool = False
    super_users: tuple[str, ...] = ()
    allow_without_acl: bool = False
    # Where the metrics are served, if at all; and, beyond loopback, that this is wanted.
    metrics_listen: tuple[str, int] | None = None
    open_metrics: str = ""
    node_id: int = 1
    is_relaxed: bool = False
    relaxed_sync_interval_ms: int = 1_000
    auto_create_topics: bool = True
    auto_create_topics_per_request_max: int = 100
    auto_create_partitions_max: int = 2_000
    default_partitions: int = 1
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    message_bytes_max: int = 1_048_588
    frame_bytes_max: int = 100 << 20
    connections_max: int = 4_000
    connections_per_address_max: int = 1_000
    first_request_ms_max: int = 30_000
    requests_in_flight_max: int = 100
    request_bytes_max: int = 256 << 20
    unsynced_bytes_max: int = 256 << 20
    offsets_retention_ms: int = 7 * DAY_MS
    group_initial_rebalance_delay_ms: int = 0
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_record_lock_ms: int = 30_000
    transaction_timeout_ms_max: int = 900_000
    housekeeping_interval_ms: int = 1_000
    retention_check_interval_ms: int = 300_000
    compaction_check_interval_ms: int = 15_000
    compaction_map_bytes: int = 128 << 20
    compaction_bytes_per_second: int = -1

    @property
    def flush_messages(self) -> int:
        return INT64_MAX if self.is_relaxed else 1

    @property
    def flush_ms(self) -> int:
        return self.relaxed_sync_interval_ms if self.is_relaxed else INT64_MAX
