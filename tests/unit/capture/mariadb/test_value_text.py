"""Packed values of the binlog to texts, against a packer that is written from the description."""

import struct
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.mariadb.value_text import (
    DIGITS_BYTES,
    date_text,
    datetime_text,
    decimal_bytes,
    decimal_reader,
    float_text,
    fraction_text,
    old_datetime_text,
    old_time_text,
    time_text,
    timestamp_text,
)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, str]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(30, precision)))
    digits = draw(st.text("0123456789", min_size=precision, max_size=precision))
    whole, fraction = digits[: precision - scale].lstrip("0") or "0", digits[precision - scale :]
    text = f"{whole}.{fraction}" if scale else whole
    sign = "-" if draw(st.booleans()) and Decimal(text) else ""
    return precision, scale, sign + text


def packed_decimal(precision: int, scale: int, text: str) -> bytes:
    whole, _, fraction = text.lstrip("-").partition(".")
    whole = whole.zfill(precision - scale) if precision > scale else ""
    odd = len(whole) % 9
    groups = [whole[:odd], *(whole[at : at + 9] for at in range(odd, len(whole), 9))]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    packed = bytearray()
    for group in groups:
        packed += int(group or 0).to_bytes(DIGITS_BYTES[len(group)], "big")
    packed[0] ^= 0x80
    return bytes(byte ^ 0xFF for byte in packed) if text.startswith("-") else bytes(packed)


@given(decimals())
def test_every_digit_of_a_decimal_arrives(given_decimal: tuple[int, int, str]) -> None:
    precision, scale, text = given_decimal
    packed = packed_decimal(precision, scale, text)
    assert len(packed) == decimal_bytes(precision, scale)
    assert decimal_reader(precision, scale)(b"?" + packed, 1) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_read_back_as_the_same_bits(number: float) -> None:
    text = float_text(number)
    assert struct.pack("<f", float(text)) == struct.pack("<f", number)


def test_a_float_is_written_as_short_as_it_can_be() -> None:
    assert float_text(struct.unpack("<f", struct.pack("<f", 0.1))[0]) == "0.1"
    assert float_text(16777216.0) == "16777216"


MOMENTS = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31))


@given(MOMENTS)
def test_a_datetime_is_written_as_in_iso_8601(moment: datetime) -> None:
    months = moment.year * 13 + moment.month
    clock = moment.hour << 12 | moment.minute << 6 | moment.second
    packed = (1 << 39) + (months << 22 | moment.day << 17 | clock)
    assert datetime_text(packed) == moment.isoformat(timespec="seconds")
    digits = int(moment.strftime("%Y%m%d%H%M%S"))
    assert old_datetime_text(digits) == moment.isoformat(timespec="seconds")
    assert date_text(moment.year << 9 | moment.month << 5 | moment.day) == str(moment.date())


@given(st.integers(1, 2**32 - 1))
def test_a_timestamp_is_in_utc(seconds: int) -> None:
    expected = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    assert timestamp_text(seconds) == expected.isoformat()


@given(st.integers(-3_020_399, 3_020_399), st.integers(0, 999_999), st.integers(0, 6))
def test_a_time_keeps_its_sign_its_hours_and_its_fraction(
    seconds: int, micros: int, digits: int
) -> None:
    size = (digits + 1) // 2
    fraction = micros // 10 ** (6 - digits) * 10 ** (2 * size - digits) if digits else 0
    whole = abs(seconds)
    clock = whole // 3600 << 12 | whole // 60 % 60 << 6 | whole % 60
    number = clock << 8 * size | fraction
    packed = (0x800000 << 8 * size) + (-number if seconds < 0 else number)
    sign = "-" if seconds < 0 else ""
    expected = f"{sign}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    expected += f".{micros:06d}"[: digits + 1] if digits else ""
    assert time_text(packed, digits) == expected


def test_no_date_at_all_is_kept() -> None:
    assert date_text(0) == "0000-00-00"
    assert datetime_text(1 << 39) == "0000-00-00T00:00:00"
    assert timestamp_text(0) == "0000-00-00T00:00:00"


def test_a_fraction_has_the_digits_that_its_column_has() -> None:
    assert fraction_text(60, 1) == ".6"
    assert fraction_text(5, 2) == ".05"
    assert fraction_text(1234, 3) == ".123"
    assert fraction_text(1, 6) == ".000001"
    assert fraction_text(0, 0) == ""


def test_a_time_of_an_old_table_is_its_digits() -> None:
    assert old_time_text(-8385959) == "-838:59:59"
    assert old_time_text(1) == "00:00:01"
