"""What the broker is told at its start. `app.py` fills it from the settings."""

from dataclasses import dataclass

from millstream.log.config import INT64_MAX

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Static configuration; what topics inherit can be changed later (topic_config.py)."""

    host: str = "127.0.0.1"
    port: int = 9092
    node_id: int = 1
    is_relaxed: bool = False
    relaxed_sync_interval_ms: int = 1_000
    auto_create_topics: bool = True
    default_partitions: int = 1
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    message_bytes_max: int = 1_048_588
    frame_bytes_max: int = 100 << 20
    connections_max: int = 1_000
    requests_in_flight_max: int = 100
    request_bytes_max: int = 256 << 20
    unsynced_bytes_max: int = 256 << 20
    offsets_retention_ms: int = 7 * DAY_MS
    group_initial_rebalance_delay_ms: int = 0
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
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
