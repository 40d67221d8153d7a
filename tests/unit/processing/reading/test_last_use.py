"""Until when operators can use events, and the file that a job's sources read it from."""

from pathlib import Path

import numpy as np
import pytest

from millstream.processing.reading.last_use import (
    BY_EVENT,
    DamagedUses,
    LastUse,
    Uses,
    encode_uses,
    is_late,
    joined,
    read_uses,
)

MINUTE = 60_000_000
ALONE = LastUse()
HOUR = LastUse(span_us=60 * MINUTE, every_us=60 * MINUTE)
HOPPING = LastUse(span_us=10 * MINUTE, every_us=5 * MINUTE, start_us=MINUTE)
SESSION = LastUse(span_us=10 * MINUTE, from_1970=False)


def late(uses: Uses, *minutes: float, watermark: float) -> list[bool]:
    times = np.array([round(one * MINUTE) for one in minutes])
    return [bool(one) for one in is_late(times, uses, round(watermark * 60_000))]


def test_a_row_that_is_judged_alone_is_late_when_the_watermark_has_reached_it() -> None:
    assert late((ALONE,), 9, 10, 10.001, watermark=10) == [True, True, False]


def test_a_window_takes_events_until_the_watermark_has_reached_its_end() -> None:
    assert late((HOUR,), 1, 59, 60, watermark=59.999) == [False, False, False]
    assert late((HOUR,), 1, 59, 60, watermark=60) == [True, True, False]


def test_of_hopping_windows_the_last_one_counts() -> None:
    # An event at 5 is in the windows from 1 to 11 and from -4 to 6; one at 6 in that up to 16.
    assert late((HOPPING,), 5, 6, -3, watermark=11) == [True, False, True]


def test_a_session_takes_what_would_be_open_alone() -> None:
    assert late((SESSION,), 4, 5, 6, watermark=15) == [True, True, False]


def test_of_several_operators_the_most_lenient_decides() -> None:
    assert joined((ALONE,), (HOUR, ALONE)) == (ALONE, HOUR)
    assert late((ALONE, HOUR), 1, watermark=59) == [False]
    assert joined((ALONE,), None) is None
    assert late(None, -10, 1, watermark=59) == [False, False]


def test_before_there_is_a_watermark_nothing_is_late_but_what_spark_would_drop() -> None:
    assert late((SESSION,), -100, 0, 1, watermark=0) == [False, False, False]
    assert late((HOUR,), -60, -1, 0, watermark=0) == [True, True, False]
    assert late((ALONE,), -1, 0, 1, watermark=0) == [True, True, False]


def test_times_at_the_ends_of_what_64_bits_hold_are_judged() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    assert is_late(ends, (HOPPING,), 10).tolist() == [True, False]


def test_a_job_writes_what_its_sources_read(tmp_path: Path) -> None:
    file = tmp_path / "uses-1.json"
    file.write_bytes(encode_uses({"clicks": (HOPPING, SESSION), "orders": None}))
    assert read_uses(str(file), "clicks") == (HOPPING, SESSION)
    assert read_uses(str(file), "orders") is None
    assert read_uses("", "clicks") == BY_EVENT


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"clicks": [{"span": 1}]}', b"[1]"])
def test_a_damaged_file_is_named_with_the_next_step(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "uses-1.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DamagedUses, match=r"uses-1\.json .*restart the job with `millstream run`"):
        read_uses(str(file), "clicks")
