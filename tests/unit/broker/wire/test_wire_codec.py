"""Reading and writing at the limits: sizes, counts, varints, tags, nulls, and what does not fit."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from millstream.base.errors import Rejected
from millstream.broker.wire import (
    ZERO_UUID,
    Buffer,
    MalformedMessage,
    Message,
    Records,
    UnencodableMessage,
    UnknownVersion,
    decode,
    encode,
)
from millstream.broker.wire.message import field
from millstream.broker.wire.primitives import STRING_BYTES_MAX


class Nothing(Message):
    later: int = field("int32", "9+", default=0)


class Pair(Message):
    left: int = field("int8", "0+", default=0)
    right: int = field("int8", "0+", default=0)


class Sample(Message, api_key=1000, versions="0-3", flexible="2+"):
    """Versions 0 and 1 are in the older form, 2 and 3 in the compact one; 1 and 3 have nulls."""

    number: int = field("int16", "0+", default=0)
    name: str | None = field("string", "0+", nullable="1+", default="")
    data: bytes | None = field("bytes", "0+", nullable="1+", default=b"")
    ids: list[int] | None = field(["int32"], "0+", nullable="1+", default_factory=list)
    pairs: list[Pair] = field([Pair], "0+", default_factory=list)
    names: list[str] = field(["string"], "0+", default_factory=list)
    uuids: list[bytes] = field(["uuid"], "0+", default_factory=list)
    only_in_3: int = field("int64", "3+", default=-1)
    pair: Pair | None = field(Pair, "3+", nullable="0+", default=None)
    tagged_pair: Pair | None = field(Pair, "2+", tag=1, default=None)
    tagged_text: str = field("string", "2+", tag=0, default="none")
    tagged_list: list[int] = field(["int8"], "2+", tag=200, default_factory=list)


class Text(Message, versions="0-1", flexible="1+"):
    text: str = field("string", "0+", default="")


class Numbers(Message, versions="0-1", flexible="1+"):
    numbers: list[int] = field(["int64"], "0+", default_factory=list)


class Nothings(Message, versions="0"):
    nothings: list[Nothing] = field([Nothing], "0+", default_factory=list)


class Flag(Message, versions="0"):
    flag: bool = field("bool", "0+", default=False)


class Identity(Message, versions="0"):
    uuid: bytes = field("uuid", "0+", default=ZERO_UUID)


class Payload(Message, versions="0-1", flexible="1+"):
    before: int = field("int8", "0+", default=0)
    records: Records | None = field("records", "0+", nullable="0+", default=None)
    after: int = field("int8", "0+", default=0)


class Blob(Message, versions="0"):
    blob: bytes = field("bytes", "0+", default=b"")


FULL = Sample(
    number=-2,
    name="ä",
    data=b"\x00\x01",
    ids=[1, -1],
    pairs=[Pair(left=1, right=2)],
    names=["", "b"],
    uuids=[bytes(range(16))],
    only_in_3=7,
    pair=Pair(left=3, right=4),
    tagged_pair=Pair(left=5, right=6),
    tagged_text="some",
    tagged_list=[1, 2],
)


def joined(message: Message, version: int) -> bytes:
    return b"".join(encode(message, version))


def rejection(message_class: type[Message], version: int, data: bytes) -> MalformedMessage:
    with pytest.raises(MalformedMessage) as caught:
        decode(message_class, version, data)
    return caught.value


def test_a_full_message_survives_the_newest_version() -> None:
    assert decode(Sample, 3, joined(FULL, 3)) == FULL


def test_what_a_version_lacks_is_skipped_and_read_as_its_default() -> None:
    read = decode(Sample, 0, joined(FULL, 0))
    assert (read.number, read.name, read.ids) == (-2, "ä", [1, -1])
    assert (read.only_in_3, read.pair, read.tagged_pair) == (-1, None, None)
    assert (read.tagged_text, read.tagged_list) == ("none", [])


@pytest.mark.parametrize("version", [1, 3])
def test_null_is_none_where_a_version_allows_it(version: int) -> None:
    message = Sample(name=None, data=None, ids=None)
    assert decode(Sample, version, joined(message, version)) == message


@pytest.mark.parametrize("name", ["name", "data", "ids"])
def test_null_is_refused_where_a_version_does_not_allow_it(name: str) -> None:
    values: dict[str, Any] = {name: None}
    with pytest.raises(UnencodableMessage, match=name):
        encode(Sample(**values), 0)
    same_layout = joined(Sample(**values), 1)
    assert "null" in rejection(Sample, 0, same_layout).reason


def test_null_in_the_compact_form_is_refused_too() -> None:
    assert "null" in rejection(Text, 1, b"\x00\x00").reason
    assert "null" in rejection(Numbers, 1, b"\x00\x00").reason


def test_a_message_cut_at_any_byte_is_rejected() -> None:
    for version in range(4):
        whole = joined(FULL, version)
        for end in range(len(whole)):
            assert rejection(Sample, version, whole[:end]).position <= end


def test_bytes_after_the_message_are_rejected() -> None:
    error = rejection(Sample, 3, joined(FULL, 3) + b"\0")
    assert error.reason == "1 bytes too many"


def test_a_rejection_names_message_field_and_place() -> None:
    error = rejection(Sample, 0, b"\x00\x01" + b"\x00\x05" + b"abc")
    assert isinstance(error, Rejected)
    assert (error.message, error.field, error.position) == ("Sample v0", "name", 4)
    assert str(error) == "Sample v0, name, at byte 4: 5 bytes announced, 3 left"


def test_bytes_that_are_not_utf8_are_rejected() -> None:
    error = rejection(Text, 0, b"\x00\x02\xc3\x28")
    assert "utf-8" in error.reason


def test_negative_sizes_and_counts_are_rejected() -> None:
    assert "negative" in rejection(Text, 0, b"\xff\xfe").reason
    assert "null" in rejection(Text, 0, b"\xff\xff").reason
    assert "negative" in rejection(Numbers, 0, b"\x80\x00\x00\x00").reason
    assert "null" in rejection(Numbers, 0, b"\xff\xff\xff\xff").reason


def test_varints_have_five_bytes_at_most() -> None:
    assert "longer" in rejection(Numbers, 1, b"\x80" * 6).reason
    assert "32 bits" in rejection(Numbers, 1, b"\xff\xff\xff\xff\x1f").reason
    assert "left" in rejection(Numbers, 1, b"\xff\xff\xff\xff\x0f").reason
    # A number may be written longer than it has to be.
    assert decode(Text, 1, b"\x82\x80\x00" + b"a" + b"\0").text == "a"


@pytest.mark.parametrize("size", [126, 127, 128, 16382, 16383, STRING_BYTES_MAX])
@pytest.mark.parametrize("version", [0, 1])
def test_strings_up_to_the_limit_survive(version: int, size: int) -> None:
    message = Text(text="x" * size)
    assert decode(Text, version, joined(message, version)) == message


@pytest.mark.parametrize("version", [0, 1])
def test_a_string_past_the_limit_is_not_encoded(version: int) -> None:
    with pytest.raises(UnencodableMessage, match="text"):
        encode(Text(text="x" * (STRING_BYTES_MAX + 1)), version)


def test_a_string_past_the_limit_is_rejected() -> None:
    size = STRING_BYTES_MAX + 2  # a compact size is one more than the bytes
    data = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    assert "exceeds" in rejection(Text, 1, data + b"x" * (STRING_BYTES_MAX + 1) + b"\0").reason


@pytest.mark.parametrize("size", [1 << 14, 1 << 21, 1 << 22])
def test_large_sizes_survive(size: int) -> None:
    for records in (bytes(size - 2), bytes(size - 1), bytes(size)):
        data = b"".join(encode(Payload(records=records), 1))
        assert decode(Payload, 1, data).records == records


def test_a_huge_count_allocates_nothing() -> None:
    frames: list[tuple[type[Message], int, bytes]] = [
        (Numbers, 0, b"\x7f\xff\xff\xff" + bytes(64)),
        (Numbers, 1, b"\xff\xff\xff\xff\x0f" + bytes(64)),
        (Sample, 0, bytes(10) + b"\x00\x00\x00\x00" + b"\x7f\xff\xff\xff"),
        (Nothings, 0, b"\x7f\xff\xff\xff" + bytes(64)),
    ]
    for message_class, version, data in frames:
        rejection(message_class, version, data)
        tracemalloc.start()
        try:
            rejection(message_class, version, data)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 64 * 1024


def test_a_count_must_fit_the_bytes_left_at_the_smallest_element() -> None:
    assert decode(Numbers, 0, b"\x00\x00\x00\x02" + bytes(16)).numbers == [0, 0]
    assert "2 elements" in rejection(Numbers, 0, b"\x00\x00\x00\x02" + bytes(15)).reason


def test_elements_of_no_bytes_count_as_one_byte_each() -> None:
    assert "5 elements" in rejection(Nothings, 0, b"\x00\x00\x00\x05" + bytes(4)).reason


def test_any_byte_but_zero_is_true() -> None:
    assert [decode(Flag, 0, bytes([byte])).flag for byte in (0, 1, 2, 255)] == [
        False,
        True,
        True,
        True,
    ]


def tags(*content: bytes) -> bytes:
    """A Text of "" in version 1, followed by tags."""
    return b"\x01" + b"".join(content)


def test_unknown_tags_are_skipped() -> None:
    assert decode(Text, 1, tags(b"\x02", b"\x00\x01a", b"\x85\x01\x02bc")) == Text()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x01\x00\x05ab", "5 bytes announced, 2 left"),
        (b"\x02\x01\x00\x01\x00", "tags must ascend"),
        (b"\x02\x05\x00\x03\x00", "tags must ascend"),
        (b"\x02\x00\x00", "the bytes end"),
        (b"\xff\xff\xff\xff\x0f", "the bytes end"),
    ],
)
def test_broken_tags_are_rejected(content: bytes, reason: str) -> None:
    assert reason in rejection(Text, 1, tags(content)).reason


def test_a_known_tag_must_fill_its_size() -> None:
    data = joined(Sample(tagged_text="some"), 2)
    assert data.endswith(b"\x01\x00\x05\x05some")
    longer = data[:-6] + b"\x06\x05some!"
    assert "differs from its size" in rejection(Sample, 2, longer).reason


def test_a_tag_is_sent_only_if_it_differs_from_its_default() -> None:
    assert joined(Sample(tagged_pair=Pair()), 2) == joined(Sample(tagged_text="none"), 2)
    assert decode(Sample, 2, joined(Sample(tagged_pair=Pair()), 2)).tagged_pair is None


def test_tags_are_sent_in_ascending_order() -> None:
    data = joined(Sample(tagged_pair=Pair(left=1), tagged_text="x", tagged_list=[9]), 2)
    assert data.endswith(
        b"\x03" + b"\x00\x02\x02x" + b"\x01\x03\x01\x00\x00" + b"\xc8\x01\x02\x02\x09"
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_views_into_the_frame(version: int, kind: type[Any]) -> None:
    frame: Buffer = kind(joined(Payload(before=1, records=b"records", after=2), version))
    records = decode(Payload, version, frame).records
    assert isinstance(records, memoryview)
    assert records.obj is (frame.obj if isinstance(frame, memoryview) else frame)
    assert bytes(records) == b"records"


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_sent_without_a_copy(version: int) -> None:
    view = memoryview(bytearray(b"a batch"))
    chunks = encode(Payload(records=view), version)
    assert [chunk is view for chunk in chunks] == [False, True, False]


@pytest.mark.parametrize("several", [list, tuple])
def test_several_batches_follow_one_another(several: type[Any]) -> None:
    one, two = b"one", memoryview(b"two")
    chunks = encode(Payload(records=several([one, two])), 1)
    assert chunks[1] is one
    assert chunks[2] is two
    assert b"".join(chunks) == joined(Payload(records=b"onetwo"), 1)


@pytest.mark.parametrize("version", [0, 1])
def test_no_records_and_empty_records_are_told_apart(version: int) -> None:
    for records in (None, b""):
        (chunk,) = encode(Payload(records=records), version)
        assert decode(Payload, version, chunk).records == records


def test_any_sequence_is_written_as_an_array() -> None:
    numbers: Any = range(3)
    assert joined(Numbers(numbers=numbers), 0) == joined(Numbers(numbers=[0, 1, 2]), 0)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (Sample(number=32768), "number"),
        (Sample(ids=[2**31]), r"ids\[\]"),
        (Sample(pairs=[Pair(left=200)]), r"pairs\[\]\.left"),
        (Sample(name="\ud800"), "name"),
        (Sample(name=b"bytes"), "name"),  # type: ignore[arg-type]
        (Sample(number="one"), "number"),  # type: ignore[arg-type]
        (Sample(pairs=[None]), r"pairs\[\]"),  # type: ignore[list-item]
        (Sample(pairs=None), r"pairs\[\]"),  # type: ignore[arg-type]
        (Sample(uuids=[bytes(15)]), r"uuids\[\]"),
        (Blob(blob="text"), "Blob v0"),  # type: ignore[arg-type]
        (Identity(uuid=bytes(17)), "uuid"),
    ],
)
def test_a_value_that_does_not_fit_is_not_encoded(message: Message, named: str) -> None:
    with pytest.raises(UnencodableMessage, match=named):
        encode(message, 0)


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_that_is_not_described_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersion, match="versions 0 to 3"):
        decode(Sample, version, b"")
    with pytest.raises(UnknownVersion, match="versions 0 to 3"):
        encode(Sample(), version)
