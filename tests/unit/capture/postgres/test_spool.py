"""The messages of a transaction until it commits."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.postgres.spool import READ_BYTES, Spool, SpoolUnwritable

ENTRIES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=200)))

FULL = Path("/dev/full")  # a disk without room


@given(ENTRIES, st.integers(0, 2000))
def test_what_comes_out_is_what_went_in(entries: list[tuple[int, bytes]], limit: int) -> None:
    spool = Spool(memory_bytes_max=limit)
    for xid, message in entries:
        spool.append(xid, message)
    assert list(spool) == entries
    assert spool.count == len(entries)
    spool.close()


def test_few_messages_stay_in_memory_and_many_do_not() -> None:
    spool = Spool(memory_bytes_max=1000)
    spool.append(1, b"x" * 880)
    assert not spool.is_on_disk
    spool.append(1, b"")
    assert spool.is_on_disk
    spool.close()


@pytest.mark.skipif(not FULL.exists(), reason="a device of Linux")
def test_a_full_disk_interrupts_and_says_where() -> None:
    spool = Spool(memory_bytes_max=0, open_file=lambda: FULL.open("wb"))
    with pytest.raises(SpoolUnwritable, match=r"No space left.*TMPDIR"):
        spool.append(1, b"x" * READ_BYTES)
    spool.close()


def test_messages_longer_than_a_read_are_whole() -> None:
    entries = [(1, b"a" * (2 * READ_BYTES + 1)), (2, b"b"), (3, b"c" * (READ_BYTES - 8))]
    spool = Spool(memory_bytes_max=0)
    for xid, message in entries:
        spool.append(xid, message)
    assert list(spool) == entries
    spool.close()
