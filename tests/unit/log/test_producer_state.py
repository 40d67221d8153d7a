"""Producer state: the last five batches are recognised, anything else must continue."""

import struct

import pytest
from crc32c import crc32c

from millstream.log.producer_state import (
    SNAPSHOT_ENTRY,
    WINDOW_BATCHES,
    BadSnapshot,
    NotInTransaction,
    OutOfOrderSequence,
    ProducerStates,
    StaleProducerEpoch,
)
from millstream.log.record_batch import (
    TRANSACTIONAL,
    BatchHeader,
    Marker,
    add_sequence,
    encode_marker,
    read_header,
)
from tests.support.batches import NOW_MS, batch

SEQUENCE_MAX = (1 << 31) - 1
DAY_MS = 24 * 3600 * 1000


def header(
    sequence: int, *, count: int = 1, offset: int = 0, epoch: int = 0, id_: int = 1
) -> BatchHeader:
    content = batch(*[b"x"] * count, producer_id=id_, producer_epoch=epoch, sequence=sequence)
    return read_header(content)._replace(base_offset=offset)


def states(*headers: BatchHeader) -> ProducerStates:
    found = ProducerStates()
    for each in headers:
        assert found.check(each) is None
        found.note(each)
    return found


def test_each_of_the_last_five_batches_is_recognised() -> None:
    sent = [header(n * 2, count=2, offset=100 + n * 2) for n in range(WINDOW_BATCHES + 1)]
    known = states(*sent)
    for each in sent[1:]:
        stored = known.check(each)
        assert stored is not None
        assert (stored.base_offset, stored.last_offset) == (each.base_offset, each.last_offset)


def test_the_sixth_last_is_not() -> None:
    sent = [header(n) for n in range(WINDOW_BATCHES + 1)]
    with pytest.raises(OutOfOrderSequence):
        states(*sent).check(sent[0])


def test_a_batch_that_overlaps_is_no_duplicate() -> None:
    with pytest.raises(OutOfOrderSequence):
        states(header(0, count=3)).check(header(0, count=2))


def test_a_gap_is_refused_with_both_numbers() -> None:
    with pytest.raises(OutOfOrderSequence) as caught:
        states(header(0, count=3)).check(header(5))
    assert (caught.value.expected, caught.value.got) == (3, 5)


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().check(header(77)) is None


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one() -> None:
    known = states(header(0), header(1))
    with pytest.raises(OutOfOrderSequence):
        known.check(header(2, epoch=1))
    new = header(0, epoch=1)
    assert known.check(new) is None
    known.note(new)
    with pytest.raises(StaleProducerEpoch):
        known.check(header(2))


def test_sequences_wrap_to_zero() -> None:
    assert add_sequence(SEQUENCE_MAX, 1) == 0
    known = states(header(SEQUENCE_MAX - 1, count=4))  # ..., 2^31 - 1, 0, 1
    assert known.check(header(2)) is None
    assert known.check(header(SEQUENCE_MAX - 1, count=4)) is not None


def test_plain_batches_are_not_remembered() -> None:
    known = ProducerStates()
    plain = read_header(batch(b"x"))
    known.note(plain)
    assert known.check(plain) is None
    assert len(known) == 0


def test_producers_that_send_nothing_for_long_are_forgotten() -> None:
    known = ProducerStates()
    known.note(header(0), now_ms=NOW_MS)
    known.expire(now_ms=NOW_MS + DAY_MS - 1, unused_ms=DAY_MS)
    assert len(known) == 1
    known.note(header(1), now_ms=NOW_MS + DAY_MS - 1)
    known.expire(now_ms=NOW_MS + DAY_MS, unused_ms=DAY_MS)
    assert len(known) == 1, "its last batch counts, not its first"
    known.expire(now_ms=NOW_MS + 2 * DAY_MS - 1, unused_ms=DAY_MS)
    assert len(known) == 0


@pytest.mark.parametrize("age_ms", [3 * DAY_MS, -3 * DAY_MS])
def test_expiry_does_not_trust_the_times_of_records(age_ms: int) -> None:
    """A producer that copies old records must not be forgotten while it sends them."""
    known = ProducerStates()
    sent = header(0)._replace(max_timestamp=NOW_MS - age_ms)
    known.note(sent, now_ms=NOW_MS)
    known.expire(now_ms=NOW_MS + 1, unused_ms=DAY_MS)
    assert known.check(sent) is not None
    known.expire(now_ms=NOW_MS + DAY_MS, unused_ms=DAY_MS)
    assert len(known) == 0


def test_a_restored_producer_counts_from_the_first_look() -> None:
    """Nobody knows how long the broker was away, and the snapshot's times are the records'."""
    sent = header(0)._replace(max_timestamp=NOW_MS - 3 * DAY_MS)
    known = ProducerStates.from_bytes(states(sent).to_bytes())
    known.expire(now_ms=NOW_MS, unused_ms=DAY_MS)
    known.expire(now_ms=NOW_MS + DAY_MS - 1, unused_ms=DAY_MS)
    assert known.check(sent) is not None
    known.expire(now_ms=NOW_MS + DAY_MS, unused_ms=DAY_MS)
    assert len(known) == 0


def test_a_snapshot_has_kafkas_layout() -> None:
    data = states(header(3, count=2, offset=40, epoch=7, id_=99)).to_bytes()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, crc, count) == (1, crc32c(data[6:]), 1)
    # id, epoch, last sequence, last offset, offset delta, timestamp, coordinator, transaction
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (99, 7, 4, 41, 1, NOW_MS, -1, -1)
    assert len(data) == 10 + 46


def test_kafkas_reader_would_end_with_the_last_batch() -> None:
    """It keeps one entry per producer, and later ones replace earlier ones."""
    data = states(*[header(n, offset=n) for n in range(3)], header(0, id_=2)).to_bytes()
    last = {entry[0]: entry[2] for entry in struct.iter_unpack(">qhiqiqiq", data[10:])}
    assert last == {1: 2, 2: 0}


def test_a_snapshot_brings_the_window_back() -> None:
    sent = [header(n * 2, count=2, offset=n * 2) for n in range(7)]
    known = ProducerStates.from_bytes(states(*sent).to_bytes())
    for each in sent[-WINDOW_BATCHES:]:
        stored = known.check(each)
        assert stored is not None
        assert stored.base_offset == each.base_offset
    assert known.check(header(14)) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:9],
        lambda d: d[:-1],
        lambda d: d + b"x",
        lambda d: b"\0\2" + d[2:],
        bytes.swapcase,
    ],
)
def test_a_snapshot_that_is_not_whole_is_refused(damage: object) -> None:
    data = states(header(0)).to_bytes()
    assert callable(damage)
    with pytest.raises(BadSnapshot):
        ProducerStates.from_bytes(damage(data))


# --- transactions -------------------------------------------------------------------------------


def marker(*, offset: int, epoch: int = 0, id_: int = 1) -> BatchHeader:
    content = encode_marker(Marker(True, 7), producer_id=id_, producer_epoch=epoch, now_ms=NOW_MS)
    return read_header(content)._replace(base_offset=offset)


@pytest.mark.parametrize("is_restored", [False, True], ids=["kept", "restored"])
def test_nothing_repeats_a_batch_from_before_a_marker(is_restored: bool) -> None:
    """A client may give the sequences of records that it gave up to its next transaction."""
    known = states(header(0, count=2, offset=0))
    known.note_marker(marker(offset=2), Marker(False, 7))
    if is_restored:
        known = ProducerStates.from_bytes(known.to_bytes())
    with pytest.raises(OutOfOrderSequence):
        known.check(header(0, count=2))
    assert known.check(header(2)) is None


def test_where_the_last_data_stands_is_known_also_behind_a_marker_and_a_restart() -> None:
    known = states(header(0, count=2, offset=10))
    known.note_marker(marker(offset=12), Marker(True, 7))
    for _ in range(2):
        known = ProducerStates.from_bytes(known.to_bytes())
        [(_, producer)] = known
        assert (producer.last.last_offset, producer.last.last_sequence) == (11, 1)


def test_kafkas_reader_finds_nothing_that_repeats_a_batch_from_before_a_marker() -> None:
    """It takes last_sequence - offset_delta for the first: a batch that ends before it begins."""
    known = states(header(0, count=2, offset=10))
    known.note_marker(marker(offset=12), Marker(True, 7))
    data = known.to_bytes()
    _, _, last_sequence, last_offset, offset_delta, *_ = SNAPSHOT_ENTRY.unpack_from(data, 10)
    assert (last_sequence, last_offset, last_sequence - offset_delta) == (1, 11, 2)


def test_a_sequence_without_an_offset_is_not_believed() -> None:
    known = states(header(0, count=2, offset=10))
    data = bytearray(known.to_bytes())
    SNAPSHOT_ENTRY.pack_into(data, 10, 1, 0, 1, -1, 0, NOW_MS, 7, -1)
    struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    with pytest.raises(BadSnapshot, match="sequence 1"):
        ProducerStates.from_bytes(bytes(data))


def test_a_marker_of_the_next_epoch_starts_the_sequence_anew() -> None:
    known = states(header(0, count=2))
    known.note_marker(marker(offset=2, epoch=1), Marker(True, 7))
    with pytest.raises(StaleProducerEpoch):
        known.check(header(2))
    with pytest.raises(OutOfOrderSequence):
        known.check(header(2, epoch=1))
    assert known.check(header(0, epoch=1)) is None


def test_an_open_transaction_comes_back_from_a_snapshot() -> None:
    first = header(0, offset=5)._replace(attributes=TRANSACTIONAL)
    known = states(first)
    restored = ProducerStates.from_bytes(known.to_bytes())
    assert restored.first_open_offset == known.first_open_offset == 5
    ended = restored.note_marker(marker(offset=6), Marker(False, 7))
    assert ended is not None
    assert ended.aborted == (1, 5, 6, 7)
    assert restored.first_open_offset is None


def test_a_producer_in_a_transaction_writes_nothing_beside_it() -> None:
    first = header(0)._replace(attributes=TRANSACTIONAL)
    with pytest.raises(NotInTransaction):
        states(first).check(header(1))


def test_a_producer_in_a_transaction_is_not_forgotten() -> None:
    known = states(header(0)._replace(attributes=TRANSACTIONAL))
    known.expire(now_ms=NOW_MS, unused_ms=DAY_MS)
    known.expire(now_ms=NOW_MS + DAY_MS, unused_ms=DAY_MS)
    assert len(known) == 1
