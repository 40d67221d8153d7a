"""The rows of a request to publish, as its topic declares them. Pure.

One row is a JSON object; {"rows": [...]} is several. `_change`: "delete" removes the row of a table
and needs its key alone. A topic without a schema takes {"key": "text", "value": "text"}, bytes as
`key_base64` and `value_base64`.
"""

import base64
import binascii
from typing import Any

from millstream.base.changes import CHANGE, CHANGES, DELETE
from millstream.base.record import Record
from millstream.base.schema import Schema, Struct
from millstream.values.unfit import Unfit, shown
from millstream.web.ports import Declared
from millstream.web.problems import Problem
from millstream.web.row_json import document_of, typed_rows

ROWS = "rows"
RAW_PARTS = ("key", "value")


def documents_in(body: bytes, *, rows_max: int) -> tuple[list[Any], bool]:
    """The rows as they came, and whether they were given as several."""
    try:
        document = document_of(body)
    except Unfit as error:
        raise Problem("bad-request", f"the body is {error}") from None
    if not isinstance(document, dict):
        raise Problem("bad-request", 'the body is no JSON object: send a row, or {"rows": [...]}')
    if set(document) != {ROWS} or not isinstance(document[ROWS], list):
        return [document], False
    rows = document[ROWS]
    if not rows:
        raise Problem("does-not-fit", "`rows` is empty: send one row at least")
    if len(rows) > rows_max:
        raise Problem("too-large", f"{len(rows)} rows in one request, {rows_max} at most")
    return rows, True


def rows_for(declared: Declared, documents: list[Any]) -> list[Any]:
    """Values of the topic's types; raises for the first row that does not fit."""
    for place, document in enumerate(documents):
        if not isinstance(document, dict):
            raise Unfit(f"row {place}: expected an object, found {shown(document)}")
    if declared.schema is None:
        return [_raw(place, document) for place, document in enumerate(documents)]
    for place, document in enumerate(documents):
        _require_known(place, document, declared.schema)
    return _typed(declared, declared.schema, documents)


def _require_known(place: int, document: dict[str, Any], schema: Schema) -> None:
    names = {field.name for field in schema}
    unknown = document.keys() - names - {CHANGE}
    if unknown:
        raise Unfit(f"row {place}: the topic has no field {min(unknown)!r}")
    change = document.get(CHANGE)
    if CHANGE not in names and change is not None and change not in CHANGES:
        raise Unfit(f"row {place}: {CHANGE} is {shown(change)}, not one of {', '.join(CHANGES)}")


def _typed(declared: Declared, schema: Schema, documents: list[Any]) -> list[Any]:
    """In their order; what deletes has its key alone."""
    rows: list[Any] = [None] * len(documents)
    for is_delete, columns in ((False, schema), (True, _key_schema(declared, schema))):
        places = [n for n, one in enumerate(documents) if _deletes(one) == is_delete]
        if places and columns is not None:
            for n, row in zip(places, _rows(columns, documents, places), strict=True):
                rows[n] = row | _change(documents[n])
        elif places:
            raise Unfit(f"row {places[0]}: it deletes, and the topic has no key")
    return rows


def _rows(columns: Schema, documents: list[Any], places: list[int]) -> list[dict[str, Any]]:
    return typed_rows(columns, [documents[n] for n in places], numbers=places)


def _deletes(document: dict[str, Any]) -> bool:
    return bool(document.get(CHANGE) == DELETE)


def _change(document: dict[str, Any]) -> dict[str, Any]:
    change = document.get(CHANGE)
    return {} if change is None else {CHANGE: change}


def _key_schema(declared: Declared, schema: Schema) -> Schema | None:
    fields = tuple(field for field in schema if field.name in declared.key)
    return Struct(fields) if fields else None


def _raw(place: int, document: dict[str, Any]) -> Record:
    known = {f"{part}{end}" for part in RAW_PARTS for end in ("", "_base64")}
    unknown = document.keys() - known
    if unknown:
        raise Unfit(
            f"row {place}: the topic has no schema, and takes key and value, or key_base64 and "
            f"value_base64; not {min(unknown)!r}"
        )
    return Record(key=_raw_part(place, document, "key"), value=_raw_part(place, document, "value"))


def _raw_part(place: int, document: dict[str, Any], part: str) -> bytes | None:
    text, coded = document.get(part), document.get(f"{part}_base64")
    if text is not None and coded is not None:
        raise Unfit(f"row {place}: {part} and {part}_base64 are both there: give one")
    found = coded if text is None else text
    if found is None:
        return None
    if type(found) is not str:
        raise Unfit(f"row {place}: {part} is {shown(found)}, and no text")
    try:
        return found.encode() if coded is None else base64.b64decode(found, validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        raise Unfit(f"row {place}: {part} is {shown(found)}, which cannot be read") from None
