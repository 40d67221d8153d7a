"""What is kept of a batch, byte by byte."""

import pytest

from millstream.base.record import Record
from millstream.log.compaction_filter import (
    CHECKED_RATIO_MAX,
    KEY_BYTES_MAX,
    LatestOffsets,
    check_keys,
    check_records,
    empty_batch,
    horizon_of,
    keep_offsets,
    note_keys,
    read_payload,
    rewrite_batch,
)
from millstream.log.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    CorruptBatch,
    InvalidBatch,
    check_batch,
    decode_records,
    encode_batch,
    read_header,
)

NOW_MS = 1_700_000_000_000
CODECS = pytest.mark.parametrize("codec", list(Codec))


def make(
    *pairs: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE, attributes: int = 0
) -> bytes:
    records = [
        Record(key=key, value=value, timestamp_ms=NOW_MS + 100 * number, headers=(("h", b"x"),))
        for number, (key, value) in enumerate(pairs)
    ]
    batch = encode_batch(
        records,
        base_offset=1_000,
        codec=codec,
        leader_epoch=4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=55,
        attributes=attributes,
    )
    return bytes(batch)


ABC = ((b"a", b"1"), (b"b", b"22"), (b"c", b"333"))


def keep(batch: bytes, *offsets: int, horizon_ms: int | None = None) -> tuple[BatchHeader, bytes]:
    header = read_header(batch)
    payload = read_payload(header, batch, 0)
    kept = keep_offsets(
        header, payload, set(offsets), may_have_tombstones=True, must_drop_tombstones=False
    )
    fast = keep_offsets(
        header, payload, set(offsets), may_have_tombstones=False, must_drop_tombstones=False
    )
    assert fast[:3] == kept[:3], "both ways must agree"
    return rewrite_batch(header, payload, kept, horizon_ms=horizon_ms)


@CODECS
def test_a_record_that_is_kept_is_as_it_was_at_its_offset(codec: Codec) -> None:
    batch = make(*ABC, codec=codec)
    header, left = keep(batch, 1_000, 1_002)
    before = list(decode_records(batch))
    assert list(decode_records(left)) == [before[0], before[2]]
    assert header == check_batch(left)
    assert header.codec == codec


def test_a_batch_keeps_its_offsets_its_sequence_and_its_epoch() -> None:
    batch = make(*ABC, attributes=TRANSACTIONAL)
    before, (after, _) = read_header(batch), keep(batch, 1_001)
    changed = ("batch_length", "crc", "record_count", "max_timestamp")
    cleared = dict.fromkeys(changed, 0)
    assert before._replace(**cleared) == after._replace(**cleared)
    assert after.last_offset == 1_002
    assert after.record_count == 1


def test_the_largest_timestamp_is_that_of_what_is_left() -> None:
    assert keep(make(*ABC), 1_000, 1_001)[0].max_timestamp == NOW_MS + 100
    assert keep(make(*ABC), 1_002)[0].max_timestamp == NOW_MS + 200


def test_the_brokers_own_time_stays() -> None:
    header, left = keep(make(*ABC, attributes=LOG_APPEND_TIME), 1_000)
    assert header.max_timestamp == NOW_MS + 200
    assert [one.timestamp_ms for one in decode_records(left)] == [NOW_MS + 200]


@CODECS
def test_a_horizon_takes_the_place_of_the_base_timestamp_and_records_keep_theirs(
    codec: Codec,
) -> None:
    batch = make(*ABC, codec=codec)
    header, left = keep(batch, 1_000, 1_001, 1_002, horizon_ms=NOW_MS + 86_400_000)
    assert list(decode_records(left)) == list(decode_records(batch))
    assert horizon_of(header) == NOW_MS + 86_400_000 == header.base_timestamp
    assert horizon_of(read_header(batch)) is None
    assert header.attributes == read_header(batch).attributes | 1 << 6
    again, left = keep(left, 1_002)
    assert horizon_of(again) == NOW_MS + 86_400_000, "it is not put off"
    assert list(decode_records(left)) == list(decode_records(batch))[2:]


@CODECS
def test_an_empty_batch_holds_its_place_and_its_sequence(codec: Codec) -> None:
    batch = make(*ABC, codec=codec)
    before, (after, content) = read_header(batch), empty_batch(read_header(batch))
    assert check_batch(content) == after
    assert list(decode_records(content)) == []
    assert (after.base_offset, after.last_offset) == (1_000, 1_002)
    assert (after.base_sequence, after.last_sequence) == (55, 57)
    assert (after.base_timestamp, after.max_timestamp) == (NO_TIMESTAMP, before.max_timestamp)
    assert after.codec == Codec.NONE


@CODECS
def test_a_cleaned_batch_can_be_noted_and_cleaned_again(codec: Codec) -> None:
    _, left = keep(make(*ABC, codec=codec), 1_000, 1_002)
    header = read_header(left)
    latest: dict[bytes, int] = {}
    note_keys(latest, header, read_payload(header, left, 0))
    assert latest == {b"a": 1_000, b"c": 1_002}
    assert [one.key for one in decode_records(keep(left, 1_002)[1])] == [b"c"]


def test_the_last_offset_of_a_key_is_noted_and_null_keys_are_not() -> None:
    batch = make((b"a", b"1"), (None, b"2"), (b"", b"3"), (b"a", None))
    latest: dict[bytes, int] = {}
    header = read_header(batch)
    assert note_keys(latest, header, read_payload(header, batch, 0)), "there is a tombstone"
    assert latest == {b"a": 1_003, b"": 1_002}
    values = read_header(make(*ABC))
    assert not note_keys(latest, values, read_payload(values, make(*ABC), 0))


@pytest.mark.parametrize("key_bytes", [KEY_BYTES_MAX, KEY_BYTES_MAX + 1, 63, 64, 5_000, 20_000])
def test_keys_of_any_length_are_told_apart(key_bytes: int) -> None:
    one, two = b"k" * key_bytes, b"k" * (key_bytes - 1) + b"l"
    batch = make((one, b"1"), (two, b"2"), (one, b"3" * 20_000))
    latest: dict[bytes, int] = {}
    header = read_header(batch)
    note_keys(latest, header, read_payload(header, batch, 0))
    assert sorted(latest.values()) == [1_001, 1_002]
    assert all(len(key) <= KEY_BYTES_MAX + 1 for key in latest)


def test_the_map_is_full_at_its_limit_but_takes_one_batch_always() -> None:
    header = read_header(make(*ABC))
    latest = LatestOffsets(1_000, keys_max=2)
    assert latest.has_room_for(header)
    latest.note(header, make(*ABC), 0)
    assert not latest.has_room_for(header)
    roomy = LatestOffsets(1_000, keys_max=6)
    roomy.note(header, make(*ABC), 0)
    assert roomy.has_room_for(header)


@CODECS
def test_a_produced_record_must_have_a_key(codec: Codec) -> None:
    check(make(*ABC, codec=codec))
    with pytest.raises(InvalidBatch, match="without a key"):
        check(make((b"a", b"1"), (None, b"2"), codec=codec))


def check(batch: bytes, *, message_bytes_max: int = 1 << 20) -> None:
    check_keys(read_header(batch), batch, message_bytes_max=message_bytes_max)


@pytest.mark.parametrize("key_bytes", [0, 1, 63, 64, 8_191, 8_192])
@pytest.mark.parametrize("value_bytes", [0, 50, 10_000])
def test_keys_and_records_of_any_length_are_checked(key_bytes: int, value_bytes: int) -> None:
    pair = (b"k" * key_bytes, b"v" * value_bytes)
    check(make(pair, pair))
    with pytest.raises(InvalidBatch, match="without a key"):
        check(make(pair, (None, b"v" * value_bytes)))


@pytest.mark.parametrize("count", [64, 65, 8_192, 8_193])
def test_however_many_records_there_are_the_last_is_checked_too(count: int) -> None:
    pairs = [(b"k", b"v")] * (count - 1)
    check(make(*pairs, (b"k", b"v")))
    with pytest.raises(InvalidBatch, match="without a key"):
        check(make(*pairs, (None, b"v")))


@pytest.mark.parametrize("codec", [one for one in Codec if one != Codec.NONE])
def test_a_produced_batch_is_not_decompressed_beyond_its_limit(codec: Codec) -> None:
    plain_bytes = len(make((b"a", b"x" * 100_000))) - HEADER_BYTES
    batch = make((b"a", b"x" * 100_000), codec=codec)
    fits = -(-plain_bytes // CHECKED_RATIO_MAX)
    check(batch, message_bytes_max=fits)
    with pytest.raises(InvalidBatch, match="decompress"):
        check(batch, message_bytes_max=fits - 1)


def test_a_produced_record_must_have_the_offset_of_its_place() -> None:
    _, batch = keep(make(*ABC), 1_000, 1_002)
    with pytest.raises(InvalidBatch, match="record 1 is numbered 2"):
        check(batch)


def test_lz4_blocks_do_not_need_the_one_before_as_java_demands() -> None:
    batch = make((b"a", b"x" * 200_000), codec=Codec.LZ4)
    flags = batch[HEADER_BYTES + 4]
    assert flags & 0b0010_0000, "the frame's flag for independent blocks"


@pytest.mark.parametrize("cut", range(1, 40))
def test_records_that_do_not_fit_are_never_read_beyond(cut: int) -> None:
    batch = make(*ABC)
    header = read_header(batch)
    payload = read_payload(header, batch, 0)
    short = payload._replace(end=payload.end - cut)
    for attempt in (
        lambda: note_keys({}, header, short),
        lambda: check_records(header, short),
        lambda: keep_offsets(
            header, short, {1_000}, may_have_tombstones=True, must_drop_tombstones=False
        ),
        lambda: keep_offsets(
            header, short, {1_000}, may_have_tombstones=False, must_drop_tombstones=False
        ),
    ):
        with pytest.raises(CorruptBatch):
            attempt()
