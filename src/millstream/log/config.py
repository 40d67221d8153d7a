"""What a partition's log is told: its limits, and when it syncs."""

from dataclasses import dataclass

UNLIMITED = -1
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Limits of one log, in Kafka's terms. A topic's configuration becomes one of these."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    deletes_old_segments: bool = True
    # Old values of a key are removed (compaction.py); such a log takes no record without a key.
    is_compacted: bool = False
    dirty_ratio_min: float = 0.5
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int = INT64_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    message_bytes_max: int = 1_048_588
    # The codec that batches are kept in, with its level; None: each as its producer sent it.
    codec: int | None = None
    codec_level: int | None = None
    is_log_append_time: bool = False
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    # 1: an append is acknowledged, and visible, once it is synced. More: by count and interval.
    flush_messages: int = 1
    flush_ms: int = INT64_MAX

    @property
    def syncs_before_ack(self) -> bool:
        return self.flush_messages == 1
