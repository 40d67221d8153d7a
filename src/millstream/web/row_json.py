"""Rows to JSON, and values of JSON to those of a schema. Pure.

As everywhere in Millstream (docs/formats/values.md): decimals are texts, BINARY is base64, times
are ISO 8601 in UTC. Here JSON is strict besides: NaN and the infinities are texts, and a map whose
keys are no texts is an array of pairs.
"""

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.base.schema import BadSchema, DataType, Field, Scalar, Schema, Struct
from millstream.values.json_decoder import JsonDecoder
from millstream.values.json_rows import NOT_FINITE, Number, parse
from millstream.values.unfit import Unfit

# Texts in JSON; a timestamp may also be a number since 1970.
TEXTS = frozenset({Scalar.STRING, Scalar.BINARY, Scalar.DATE})
TIMES = frozenset({Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ})
FLOATS = frozenset({Scalar.FLOAT, Scalar.DOUBLE})
# Arrays and objects within one another. Types nest a few deep; to read and write a level takes two
# of Python's 1,000 frames.
NESTING_MAX = 100


def to_json(found: Any) -> bytes:
    return json.dumps(to_plain(found), ensure_ascii=False, separators=(",", ":")).encode()


def to_plain(found: Any) -> Any:
    """Of a value of a view: what `json` has words for. To `as_text`, NaN is still a number."""
    match found:
        case None | bool() | int() | str():
            return found
        case float():
            return found if math.isfinite(found) else _word_of(found)
        case datetime():
            return found.isoformat().replace("+00:00", "Z")
        case date():
            return found.isoformat()
        case Decimal():
            return f"{found:f}"
        case bytes():
            return base64.b64encode(found).decode()
        case Mapping():
            return _plain_mapping(found)
        case list() | tuple():
            return [to_plain(one) for one in found]
    raise TypeError(f"no JSON for {type(found).__name__}")


def _plain_mapping(found: Mapping[Any, Any]) -> Any:
    if all(isinstance(name, str) for name in found):
        return {name: to_plain(value) for name, value in found.items()}
    return [[to_plain(name), to_plain(value)] for name, value in found.items()]


def _word_of(found: float) -> Number:
    if math.isnan(found):
        return Number("NaN")
    return Number("Infinity" if found > 0 else "-Infinity")


# --- from JSON --------------------------------------------------------------------------------


def document_of(text: bytes) -> Any:
    """Numbers stay as they were written: only a field's type says how to read one."""
    try:
        document = parse(text)
    except RecursionError:
        raise Unfit("not JSON, or nested too deeply") from None
    if _is_deeper(document, NESTING_MAX):
        raise Unfit(f"nested too deeply: {NESTING_MAX} arrays and objects at most")
    if (word := _word_in(document)) is not None:
        raise Unfit(f'not JSON: {word} is not a number there. Write "{word}", as a text')
    return document


def _word_in(document: Any) -> str | None:
    """NaN or an infinity as a number, which Python reads and JSON has not."""
    if isinstance(document, dict | list):
        found = (_word_in(one) for one in _within(document))
        return next((one for one in found if one is not None), None)
    return str(document) if type(document) is Number and document in NOT_FINITE else None


def _is_deeper(document: Any, levels: int) -> bool:
    """Level by level: a walk that calls itself would end as the one it is to spare."""
    found = [document] if isinstance(document, dict | list) else []
    for _ in range(levels):
        found = [one for outer in found for one in _within(outer) if isinstance(one, dict | list)]
    return bool(found)


def _within(outer: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def as_text(document: Any) -> str:
    """A document as it came, number for number."""
    match document:
        case Number():
            return str(document)
        case dict():
            pairs = (f"{json.dumps(name)}:{as_text(value)}" for name, value in document.items())
            return f"{{{','.join(pairs)}}}"
        case list():
            return f"[{','.join(map(as_text, document))}]"
    return json.dumps(document)


def typed_rows(
    schema: Schema, documents: Sequence[Any], *, numbers: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Rows of the schema; raises for the first that is none, with its number if there are any."""
    values = pa.array([as_text(one).encode() for one in documents], pa.binary())
    decoded = JsonDecoder(schema).decode(values)
    if decoded.bad:
        first = min(decoded.bad, key=lambda bad: bad.row)
        raise Unfit(
            first.reason if numbers is None else f"row {numbers[first.row]}: {first.reason}"
        )
    rows: list[dict[str, Any]] = decoded.batch.to_pylist(maps_as_pydicts="strict")
    return rows


def typed_value(kind: DataType, document: Any, *, name: str) -> Any:
    """One value, for a key or a condition; null is one of every type."""
    try:
        return typed_rows(Struct((Field(name, kind),)), [{name: document}])[0][name]
    except BadSchema as error:
        raise Unfit(str(error), path=name) from None


def from_segment(kind: DataType, text: str) -> Any:
    """A part of a path as the document that it stands for: texts need no quotes there."""
    if kind in TEXTS or (kind in TIMES and not text.lstrip("-").isdigit()):
        return text
    if kind in FLOATS and text in NOT_FINITE:
        return text
    if isinstance(kind, Scalar) or text[:1] in ("{", "["):
        return document_of(text.encode("utf-8", "surrogatepass"))
    return text  # a decimal
