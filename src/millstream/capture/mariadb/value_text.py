"""Values as the binlog stores them, to the text that they have in JSON. Pure.

Numbers in packed forms are big-endian, so that the server can compare them as bytes.

    DATETIME  5 bytes  1 bit sign, 17 year * 13 + month, 5 day, 5 hour, 6 minute, 6 second
    TIME      3 bytes  1 bit sign, 1 unused, 10 hour, 6 minute, 6 second; with its fraction it is
                       one number, of which 0x80 00 00 ... is subtracted
    fraction  0-3 bytes, hundredths of a second in the first, and so on
    DECIMAL   digits in groups of nine (4 bytes), the odd ones in less; a negative one has all its
              bits turned over, and the first bit of a positive one is set
"""

import struct
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Final

DAY_S: Final = 86_400
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
DATETIME_SIGN: Final = 1 << 39
# Bytes of so many decimal digits.
DIGITS_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
MINUTES: Final = tuple(f"{minute // 60:02d}:{minute % 60:02d}:" for minute in range(1440))
SECONDS: Final = tuple(f"{second:02d}" for second in range(60))
FLOAT_32: Final = struct.Struct("<f")

ReadText = Callable[[bytes, int], str]


def fraction_bytes(digits: int) -> int:
    return (digits + 1) // 2


def date_text(packed: int) -> str:
    """Of a DATE: 5 bits day, 4 month, the rest year. Days that are none ("0000-00-00") are kept."""
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"


@lru_cache(maxsize=4096)
def _month_day_text(packed: int) -> str:
    months, day = packed >> 5, packed & 31
    return f"{months // 13:04d}-{months % 13:02d}-{day:02d}T"


@lru_cache(maxsize=4096)
def _day_text(days: int) -> str:
    return f"{date.fromordinal(EPOCH_DAY + days).isoformat()}T"


def datetime_text(packed: int) -> str:
    """Whole seconds, of the five bytes as a number."""
    packed -= DATETIME_SIGN
    minutes = (packed >> 12 & 31) * 60 + (packed >> 6 & 63)
    return _month_day_text(packed >> 17) + MINUTES[minutes] + SECONDS[packed & 63]


def old_datetime_text(digits: int) -> str:
    """YYYYMMDDhhmmss as a number: tables that were made before MariaDB 10.1."""
    text = f"{digits:014d}"
    return f"{text[:4]}-{text[4:6]}-{text[6:8]}T{text[8:10]}:{text[10:12]}:{text[12:]}"


def timestamp_text(seconds: int) -> str:
    """Whole seconds since 1970, in UTC; 0 is the server's mark for no time at all."""
    if not seconds:
        return "0000-00-00T00:00:00"
    days, second = divmod(seconds, DAY_S)
    return _day_text(days) + MINUTES[second // 60] + SECONDS[second % 60]


def fraction_text(packed: int, digits: int) -> str:
    """With its point; "" if the column has none."""
    if not digits:
        return ""
    return "." + f"{packed:0{2 * fraction_bytes(digits)}d}"[:digits]


def time_text(packed: int, digits: int) -> str:
    """Of all its bytes as a number; as the server writes it, up to 838 hours to either side."""
    bits = 8 * fraction_bytes(digits)
    packed -= 0x800000 << bits
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, fraction = packed >> bits, packed & (1 << bits) - 1
    clock = f"{whole >> 12:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
    return sign + clock + fraction_text(fraction, digits)


def old_time_text(digits: int) -> str:
    """hhmmss as a number."""
    sign, digits = ("-", -digits) if digits < 0 else ("", digits)
    return f"{sign}{digits // 10000:02d}:{digits // 100 % 100:02d}:{digits % 100:02d}"


def float_text(number: float) -> str:
    """The shortest text that is read as the same 32 bits."""
    for digits in range(6, 9):
        text = f"{number:.{digits}g}"
        if FLOAT_32.unpack(FLOAT_32.pack(float(text)))[0] == number:
            return text
    return f"{number:.9g}"


def decimal_bytes(precision: int, scale: int) -> int:
    return sum(digits // 9 * 4 + DIGITS_BYTES[digits % 9] for digits in (precision - scale, scale))


def decimal_reader(precision: int, scale: int) -> ReadText:
    """Every digit, as the server writes it: `-0.50` for a DECIMAL(4,2)."""
    size = decimal_bytes(precision, scale)
    ones, sign = (1 << 8 * size) - 1, 1 << 8 * size - 1
    groups = _decimal_groups(precision, scale)

    def read(data: bytes, at: int) -> str:
        packed = int.from_bytes(data[at : at + size], "big")
        is_negative = not packed & sign
        packed = (packed ^ ones if is_negative else packed) & ~sign
        number = 0
        for shift, mask, power in groups:
            number = number * power + (packed >> shift & mask)
        text = f"{number:0{scale + 1}d}"
        if scale:
            text = f"{text[:-scale]}.{text[-scale:]}"
        return "-" + text if is_negative else text

    return read


def _decimal_groups(precision: int, scale: int) -> list[tuple[int, int, int]]:
    """Where each group of digits is: (shift, mask, ten to the number of its digits)."""
    before, after = precision - scale, scale
    digits = [before % 9, *[9] * (before // 9), *[9] * (after // 9), after % 9]
    groups: list[tuple[int, int, int]] = []
    shift = 0
    for count in reversed(digits):
        bits = 8 * DIGITS_BYTES[count]
        if bits:
            groups.append((shift, (1 << bits) - 1, 10**count))
        shift += bits
    return groups[::-1]
