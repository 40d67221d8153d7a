import pytest

from millstream.base.offsets import OffsetRange
from millstream.base.quantity import DAY_MS, GIB, HOUR_MS, MINUTE_MS
from millstream.commands.groups import effect, parse_topic_partitions
from millstream.commands.lag import PartitionLag, Place, Retention, add_lags, lag_of, total
from millstream.commands.options import BadOption

NOW_MS = 1_800_000_000_000
KEPT_A_DAY = Retention(retention_ms=DAY_MS, retention_bytes=-1, cleanup_policy="delete")


def partition(
    *,
    committed: int | None = 50,
    start: int = 10,
    end: int = 100,
    retention: Retention | None = KEPT_A_DAY,
    next_record_ms: int | None = NOW_MS,
) -> PartitionLag:
    return PartitionLag(
        topic="orders",
        partition=0,
        place=None if committed is None else Place(committed),
        available=OffsetRange(start=start, end=end),
        retention=retention,
        next_record_ms=next_record_ms,
        member=None,
    )


def test_lag_is_ahead_and_headroom_is_behind() -> None:
    part = partition(committed=50, start=10, end=100)
    assert (part.lag, part.headroom, part.lost) == (50, 40, 0)


def test_what_is_lost_is_counted_and_is_not_lag() -> None:
    part = partition(committed=4, start=10, end=100)
    assert (part.lag, part.headroom, part.lost) == (90, 0, 6)
    assert part.risk(now_ms=NOW_MS) == "ALREADY LOST 6 records"


def test_a_share_group_tells_its_lag_itself() -> None:
    """Records after its start may be done already; and a start past the end is no lag."""
    available = OffsetRange(start=0, end=100)
    assert lag_of(Place(50, lag=20), available) == 20
    assert lag_of(Place(150, lag=-50), available) == 0


def test_a_commit_at_the_start_has_lost_nothing() -> None:
    assert partition(committed=10, start=10).lost == 0
    assert partition(committed=9, start=10).risk(now_ms=NOW_MS) == "ALREADY LOST 1 record"


def test_without_a_commit_there_is_no_lag_to_speak_of() -> None:
    part = partition(committed=None)
    assert (part.lag, part.headroom, part.lost) == (None, None, 0)
    assert part.risk(now_ms=NOW_MS) == "-"


def test_a_commit_past_the_end_is_no_negative_lag() -> None:
    """A topic that was deleted and made again has fewer records than the group committed."""
    assert partition(committed=150, end=100).lag == 0


def test_the_loss_comes_when_the_next_record_is_too_old() -> None:
    written_ms = NOW_MS - DAY_MS + 3 * HOUR_MS + 12 * MINUTE_MS
    part = partition(next_record_ms=written_ms)
    assert part.risk(now_ms=NOW_MS) == "loses data in 3h 12m"
    assert part.loses_data_in_ms(now_ms=NOW_MS) == 3 * HOUR_MS + 12 * MINUTE_MS


def test_a_record_past_its_time_may_go_now() -> None:
    part = partition(next_record_ms=NOW_MS - 2 * DAY_MS)
    assert part.risk(now_ms=NOW_MS) == "may lose data NOW"


def test_a_group_that_has_read_everything_has_nothing_to_lose() -> None:
    assert partition(committed=100, end=100).risk(now_ms=NOW_MS) == "none"


def test_a_topic_that_keeps_everything_puts_nobody_at_risk() -> None:
    forever = Retention(retention_ms=-1, retention_bytes=-1, cleanup_policy="delete")
    compacted = Retention(retention_ms=DAY_MS, retention_bytes=GIB, cleanup_policy="compact")
    assert partition(retention=forever, next_record_ms=None).risk(now_ms=NOW_MS) == "none"
    assert partition(retention=compacted, next_record_ms=None).risk(now_ms=NOW_MS) == "none"


def test_retention_by_size_is_noted() -> None:
    both = Retention(retention_ms=DAY_MS, retention_bytes=GIB, cleanup_policy="delete")
    size_only = Retention(retention_ms=-1, retention_bytes=GIB, cleanup_policy="delete")
    assert partition(retention=both).risk(now_ms=NOW_MS) == "loses data in 1d, sooner by size"
    assert partition(retention=size_only).risk(now_ms=NOW_MS) == "may lose data by size"


def test_an_unread_timestamp_is_not_guessed() -> None:
    assert partition(next_record_ms=None).risk(now_ms=NOW_MS) == "unknown"


def test_without_the_right_to_see_the_retention_only_losses_are_known() -> None:
    assert partition(retention=None).risk(now_ms=NOW_MS) == "unknown"
    assert partition(retention=None).loses_data_in_ms(now_ms=NOW_MS) is None
    assert partition(retention=None, committed=100).risk(now_ms=NOW_MS) == "none"
    assert partition(retention=None, committed=9).risk(now_ms=NOW_MS) == "ALREADY LOST 1 record"


def test_an_unknown_lag_is_never_added_as_0() -> None:
    nothing, some = add_lags([None]), add_lags([1_000, None, None])
    assert (nothing.lag, nothing.known, nothing.never_committed) == (None, 0, 1)
    assert (some.lag, some.known, some.never_committed) == (None, 1_000, 2)
    assert str(nothing) == "0 + 1 partition never committed"
    assert str(some) == "1,000 + 2 partitions never committed"
    assert str(add_lags([1_000, 0])) == "1,000"


def test_a_total_adds_lag_and_takes_the_first_loss() -> None:
    parts = [partition(next_record_ms=NOW_MS), partition(next_record_ms=NOW_MS - HOUR_MS)]
    summed = total("orders", parts, now_ms=NOW_MS)
    assert (summed.partitions, summed.lag.lag, summed.lost) == (2, 100, 0)
    assert summed.loses_data_in_ms == DAY_MS - HOUR_MS


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (KEPT_A_DAY, "1d"),
        (Retention(retention_ms=-1, retention_bytes=-1, cleanup_policy="delete"), "forever"),
        (
            Retention(retention_ms=DAY_MS, retention_bytes=GIB, cleanup_policy="compact,delete"),
            "1d, 1GiB per partition, compacted",
        ),
        (
            Retention(retention_ms=DAY_MS, retention_bytes=-1, cleanup_policy="compact"),
            "forever, compacted",
        ),
    ],
)
def test_retention_is_said_in_words(retention: Retention, words: str) -> None:
    assert str(retention) == words


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (50, 20, "reads 30 records again"),
        (50, 51, "skips 1 record"),
        (50, 50, "stays"),
        (None, 10, "set to 10 (had none)"),
        (None, 50, "set to 50 (had none)"),
        (4, 10, "set to 10 (6 records lost to retention)"),
    ],
)
def test_the_effect_of_a_reset_is_said(old: int | None, new: int, words: str) -> None:
    assert effect(old, new, OffsetRange(start=10, end=100)) == words


def test_a_topic_may_name_its_partitions() -> None:
    assert parse_topic_partitions("orders") == ("orders", [])
    assert parse_topic_partitions("orders:0,2") == ("orders", [0, 2])
    for text in ("", ":1", "orders:", "orders:x", "orders:-1"):
        with pytest.raises(BadOption):
            parse_topic_partitions(text)
