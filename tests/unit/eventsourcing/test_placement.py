"""A stream is where every Kafka client would put its name."""

import pytest

from millstream.eventsourcing.placement import BadStreamName, murmur2, partition_of, stream_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"abc", 479470107),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
    ],
)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % (1 << 32)


def test_a_name_is_always_in_one_of_the_partitions() -> None:
    assert {partition_of(f"Cart:{number}", 7) for number in range(200)} == set(range(7))


def test_a_name_may_have_as_many_bytes_as_the_limit_and_no_more() -> None:
    assert len(stream_key("ä" * 500)) == 1_000
    with pytest.raises(BadStreamName, match="1,001 bytes"):
        stream_key("x" + "ä" * 500)


def test_a_message_does_not_grow_with_a_name() -> None:
    with pytest.raises(BadStreamName) as refused:
        stream_key("x" * 1_000_000)
    assert len(str(refused.value)) < 300
