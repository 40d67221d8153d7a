"""Values of PostgreSQL's types as Debezium writes them, and the schemas that it gives them. Pure.

A value arrives in our form (docs/formats/capture_values.md), parsed from JSON; the type is known by
PostgreSQL's own name for it ("timestamp(3) without time zone"), a domain by the type of ours.
"""

import base64
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from millstream.base.schema import DataType, DecimalOf, ListOf, Scalar
from millstream.capture.change import CapturedColumn

Json = Any
Convert = Callable[[Json], Json]

DECLARED: Final = re.compile(
    r"([^(\[]+?)\s*(?:\((\d+)(?:,(-?\d+))?\))?\s*(with(?:out)? time zone)?"
)
DAY_US: Final = 86_400_000_000
MONTH_DAYS: Final = 365.25 / 12
# As Debezium documents them, for PostgreSQL's infinite timestamps.
INFINITE: Final = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
UNAVAILABLE: Final = "__debezium_unavailable_value"
DATE_TIME: Final = re.compile(r"(\d+)-(\d\d)-(\d\d)(?:[T ](\d\S*?))?( BC)?")
CLOCK: Final = re.compile(r"(\d+):(\d\d):(\d\d)(?:\.(\d+))?")
ZONE: Final = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$")
INTERVAL_PART: Final = re.compile(r"([+-]?\d+) (year|mon|day)s?")
INTERVAL_CLOCK: Final = re.compile(r"([+-]?)(\d+:\d\d:\d\d(?:\.\d+)?)")

# What time columns are in each mode: the schema of a date, and the unit and schemas of the others.
SCHEMA_NAMES: Final[Mapping[str, str]] = {
    "ms": "io.debezium.time.{}",
    "us": "io.debezium.time.Micro{}",
    "ns": "io.debezium.time.Nano{}",
}
UNITS_US: Final[Mapping[str, tuple[int, int]]] = {"ms": (1, 1000), "us": (1, 1), "ns": (1000, 1)}


class Modes(NamedTuple):
    """`time`: Debezium's time.precision.mode; `decimal`: its decimal.handling.mode."""

    time: str = "adaptive"
    decimal: str = "precise"


class Form(NamedTuple):
    schema: dict[str, Json]  # Connect's, without `optional` and `field`
    convert: Convert


class Declared(NamedTuple):
    """PostgreSQL's name of a type, taken apart."""

    word: str
    length: int | None
    scale: int | None
    is_zoned: bool


def form_of(column: CapturedColumn, modes: Modes) -> Form:
    declared = column.database_type
    if declared.endswith("[]"):
        inner = column.type.element if isinstance(column.type, ListOf) else Scalar.STRING
        element = _form(_declared(declared[:-2]), inner, modes)
        return _array(element)
    if isinstance(column.type, ListOf):  # a domain over an array
        return _array(_form(_declared(""), column.type.element, modes))
    return _form(_declared(declared), column.type, modes)


def _array(element: Form) -> Form:
    def convert(value: Json) -> Json:
        if not isinstance(value, list):  # of several dimensions: as the database has it
            return value
        return [None if one is None else element.convert(one) for one in value]

    return Form({"type": "array", "items": {**element.schema, "optional": True}}, convert)


def _declared(text: str) -> Declared:
    found = DECLARED.fullmatch(text)
    if found is None:
        return Declared(text, None, None, is_zoned=False)
    length, scale = (None if one is None else int(one) for one in (found[2], found[3]))
    return Declared(found[1], length, scale, is_zoned=found[4] == "with time zone")


def _form(declared: Declared, kind: DataType, modes: Modes) -> Form:
    word = declared.word.rpartition(".")[2]
    if word == "numeric" or isinstance(kind, DecimalOf):
        return _numeric(_of_domain(declared, kind), modes.decimal)
    if word == "money":
        return _money(modes.decimal)
    if word in ("date", "time", "timestamp"):
        return _time(word, declared, modes.time)
    if word in ("bit", "bit varying"):
        return _bits(declared)
    if word in FORMS:
        return FORMS[word]
    return _by_kind(kind, modes)


def _of_domain(declared: Declared, kind: DataType) -> Declared:
    if declared.word != "numeric" and isinstance(kind, DecimalOf):
        return Declared("numeric", kind.precision, kind.scale, is_zoned=False)
    return declared


def _by_kind(kind: DataType, modes: Modes) -> Form:
    """Of a domain, or a type without a form of its own: by the type that it has here."""
    if kind is Scalar.DATE:
        return _time("date", Declared("date", None, None, is_zoned=False), modes.time)
    if kind in (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ):
        zoned = kind is Scalar.TIMESTAMP
        return _time("timestamp", Declared("timestamp", None, None, is_zoned=zoned), modes.time)
    return FORMS[BY_KIND.get(kind, "text")] if isinstance(kind, Scalar) else FORMS["text"]


def _same(value: Json) -> Json:
    return value


def _named(kind: str, name: str, convert: Convert = _same, **more: Json) -> Form:
    return Form({"type": kind, "name": name, "version": 1, **more}, convert)


# --- numbers -----------------------------------------------------------------------------------


def _numeric(declared: Declared, mode: str) -> Form:
    if mode == "string":
        return Form({"type": "string"}, str)
    if mode == "double":
        return Form({"type": "double"}, _double)
    if declared.length is None:
        return _variable_scale()
    parameters = {
        "scale": str(declared.scale or 0),
        "connect.decimal.precision": str(declared.length),
    }
    return _decimal(parameters)


def _decimal(parameters: Mapping[str, str]) -> Form:
    scale = int(parameters["scale"])
    name = "org.apache.kafka.connect.data.Decimal"
    return _named("bytes", name, lambda text: _unscaled(text, scale), parameters=dict(parameters))


def _variable_scale() -> Form:
    fields = [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ]
    schema = {
        "type": "struct",
        "fields": fields,
        "name": "io.debezium.data.VariableScaleDecimal",
        "version": 1,
        "doc": "Variable scaled decimal",
    }
    return Form(schema, _scaled)


def _scaled(text: Json) -> Json:
    number = _finite(text)
    if number is None:
        return None
    scale = max(0, -int(number.as_tuple().exponent))
    return {"scale": scale, "value": _unscaled(text, scale)}


def _unscaled(text: Json, scale: int) -> str | None:
    """Big-endian, with a sign, in as few bytes as hold it. No bytes are NaN, or infinite."""
    number = _finite(text)
    if number is None:
        return None
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits))) * 10 ** max(0, scale + int(exponent))
    whole = -whole if sign else whole
    bits = (whole + 1 if whole < 0 else whole).bit_length()
    return base64.b64encode(whole.to_bytes(bits // 8 + 1, "big", signed=True)).decode()


def _finite(text: Json) -> Decimal | None:
    try:
        number = Decimal(str(text))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _double(text: Json) -> Json:
    number = _finite(text)
    return str(text) if number is None else float(number)


def _money(mode: str) -> Form:
    """`-$1,234.50` in the C locale."""

    def plain(text: Json) -> str:
        return re.sub(r"[^0-9.\-]", "", str(text))

    if mode == "string":
        return Form({"type": "string"}, plain)
    if mode == "double":
        return Form({"type": "double"}, lambda text: float(plain(text)))
    form = _decimal({"scale": "2"})
    return Form(form.schema, lambda text: form.convert(plain(text)))


def _bits(declared: Declared) -> Form:
    if declared.word == "bit" and (declared.length or 1) == 1:
        return Form({"type": "boolean"}, lambda text: text == "1")
    parameters = {"length": str(declared.length if declared.length is not None else 2147483647)}
    return _named("bytes", "io.debezium.data.Bits", _bits_low_first, parameters=parameters)


def _bits_low_first(text: Json) -> str:
    number = int(text or "0", 2)
    data = number.to_bytes((number.bit_length() + 7) // 8, "little")
    return base64.b64encode(data).decode()


# --- times -------------------------------------------------------------------------------------


def _time(word: str, declared: Declared, mode: str) -> Form:
    if declared.is_zoned:
        name = "ZonedTime" if word == "time" else "ZonedTimestamp"
        return _named("string", f"io.debezium.time.{name}", _utc_clock if word == "time" else _same)
    if mode == "isostring":
        name = {"date": "IsoDate", "time": "IsoTime", "timestamp": "IsoTimestamp"}[word]
        return _named("string", f"io.debezium.time.{name}", lambda text: f"{text}Z")
    if word == "date":
        kafka = mode == "connect"
        name = "org.apache.kafka.connect.data.Date" if kafka else "io.debezium.time.Date"
        return _named("int32", name, _days)
    return _counted(word, declared, mode)


def _counted(word: str, declared: Declared, mode: str) -> Form:
    is_short = declared.length is not None and declared.length <= 3
    unit = {"microseconds": "us", "nanoseconds": "ns", "connect": "ms"}.get(mode)
    if unit is None:
        is_adaptive = mode == "adaptive" or word == "timestamp"
        unit = "ms" if is_short and is_adaptive else "us"
    shown = word.capitalize()
    name = SCHEMA_NAMES[unit].format(shown)
    if mode == "connect":
        name = f"org.apache.kafka.connect.data.{shown}"
    kind = "int32" if word == "time" and unit == "ms" else "int64"
    times, per = UNITS_US[unit]
    read = _clock_us if word == "time" else _timestamp_us

    def convert(text: Json) -> Json:
        return INFINITE[text] if text in INFINITE else read(text) * times // per

    return _named(kind, name, convert)


def _days(text: Json) -> Json:
    """Since 1970. Infinite dates have no number of days."""
    found = DATE_TIME.fullmatch(text)
    if found is None:
        return None
    year = int(found[1])
    return _days_of(1 - year if found[5] else year, int(found[2]), int(found[3]))


def _days_of(year: int, month: int, day: int) -> int:
    """By the calendar of today for all times: PostgreSQL does the same, and years before 1 are
    none for Python's dates. Years begin with March here, so that a leap day is the last one."""
    year -= month <= 2
    days_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    leap_days = year // 4 - year // 100 + year // 400
    return year * 365 + leap_days + days_of_year - 719_468


def _timestamp_us(text: Json) -> int:
    found = DATE_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no timestamp")
    return int(_days(text)) * DAY_US + _clock_us(found[4] or "00:00:00")


def _clock_us(text: Json) -> int:
    found = CLOCK.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no time of a day")
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    return seconds * 1_000_000 + int((found[4] or "0").ljust(6, "0")[:6])


def _utc_clock(text: Json) -> str:
    """12:34:56.789+02 to 10:34:56.789Z."""
    found = ZONE.search(text)
    shift = 0
    if found is not None:
        shift = int(found[2]) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
        shift = -shift if found[1] == "-" else shift
    seconds, rest = divmod(_clock_us(text) - shift * 1_000_000, 1_000_000)
    seconds %= 86_400
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return shown + (f".{rest:06d}".rstrip("0") if rest else "") + "Z"


def _interval_us(text: Json) -> Json:
    """A month has 365.25 / 12 days, as Debezium counts."""
    counts = {"year": 0, "mon": 0, "day": 0}
    for number, part in INTERVAL_PART.findall(text):
        counts[part] = int(number)
    days = (counts["year"] * 12 + counts["mon"]) * MONTH_DAYS + counts["day"]
    clock = INTERVAL_CLOCK.search(text)
    rest = _clock_us(clock[2]) * (-1 if clock[1] == "-" else 1) if clock else 0
    return int(days * DAY_US) + rest


# --- others ------------------------------------------------------------------------------------


def _point(text: Json) -> Json:
    x, y = (float(part) for part in str(text).strip("()").split(","))
    wkb = struct.pack("<BIdd", 1, 1, x, y)
    return {"x": x, "y": y, "wkb": base64.b64encode(wkb).decode(), "srid": None}


POINT: Final = Form(
    {
        "type": "struct",
        "fields": [
            {"type": "double", "optional": False, "field": "x"},
            {"type": "double", "optional": False, "field": "y"},
            {"type": "bytes", "optional": True, "field": "wkb"},
            {"type": "int32", "optional": True, "field": "srid"},
        ],
        "name": "io.debezium.data.geometry.Point",
        "version": 1,
        "doc": "Geometry (POINT)",
    },
    _point,
)
FORMS: Final[Mapping[str, Form]] = {
    "boolean": Form({"type": "boolean"}, _same),
    "smallint": Form({"type": "int16"}, _same),
    "integer": Form({"type": "int32"}, _same),
    "bigint": Form({"type": "int64"}, _same),
    "oid": Form({"type": "int64"}, _same),
    "real": Form({"type": "float"}, _same),
    "double precision": Form({"type": "double"}, _same),
    "bytea": Form({"type": "bytes"}, _same),
    "text": Form({"type": "string"}, _same),
    "json": _named("string", "io.debezium.data.Json"),
    "jsonb": _named("string", "io.debezium.data.Json"),
    "uuid": _named("string", "io.debezium.data.Uuid"),
    "xml": _named("string", "io.debezium.data.Xml"),
    "tsvector": _named("string", "io.debezium.data.Tsvector"),
    "ltree": _named("string", "io.debezium.data.Ltree"),
    "interval": _named("int64", "io.debezium.time.MicroDuration", _interval_us),
    "point": POINT,
}
BY_KIND: Final[Mapping[Scalar, str]] = {
    Scalar.BOOLEAN: "boolean",
    Scalar.SMALLINT: "smallint",
    Scalar.INT: "integer",
    Scalar.BIGINT: "bigint",
    Scalar.FLOAT: "real",
    Scalar.DOUBLE: "double precision",
    Scalar.BINARY: "bytea",
}


def unavailable(schema: Mapping[str, Json]) -> Json:
    """Instead of a value that the database did not log, as it did not change."""
    if schema["type"] == "string":
        return UNAVAILABLE
    if schema["type"] == "bytes":
        return base64.b64encode(UNAVAILABLE.encode()).decode()
    if schema["type"] == "array" and schema["items"]["type"] == "string":
        return [UNAVAILABLE]
    return None
