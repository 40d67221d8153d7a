"""What the query string of a request asks of a view, with values of the view's types. Pure.

key=["ada",7]          JSON; repeated for several rows
where={"count >=": 5}  JSON, as `View.scan` takes it
order_by=-count,url    the greatest count first
after=clicks:0:41      what was published there has arrived; several: commas
cursor=...             where the last page ended
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.base.schema import DataType, ListOf, Schema, Struct
from millstream.queues.outbox import Receipt
from millstream.values.unfit import Unfit
from millstream.views.conditions import split_condition
from millstream.views.store import Row
from millstream.web.problems import Problem
from millstream.web.row_json import document_of, from_segment, to_json, typed_value

RECEIPT = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249}):(?P<partition>\d{1,9}):(?P<offset>\d{1,18})"
)
WHOLE = re.compile(r"\d{1,9}")
SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?")
RECEIPTS_MAX = 1_000


class Asked:
    """The parameters of one request: each known, and there once unless it may repeat."""

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        known: Sequence[str],
        repeated: Sequence[str] = (),
    ) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            if name not in known:
                raise bad(name, f"there is no such parameter ({', '.join(known) or 'none'})")
            self._values.setdefault(name, []).append(value)
        for name, values in self._values.items():
            if len(values) > 1 and name not in repeated:
                raise bad(name, f"it is there {len(values)} times: give it once")

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def text(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)

    def whole(self, name: str, *, default: int, at_most: int) -> int:
        text = self.text(name)
        if text is None:
            return min(default, at_most)
        if not WHOLE.fullmatch(text) or not 1 <= int(text) <= at_most:
            raise bad(name, f"{text!r} is no whole number from 1 to {at_most}")
        return int(text)

    def seconds(self, name: str, *, default: float, at_most: float) -> float:
        text = self.text(name)
        if text is None:
            return min(default, at_most)
        if not SECONDS.fullmatch(text) or float(text) > at_most:
            raise bad(name, f"{text!r} is no number of seconds from 0 to {at_most:g}")
        return float(text)

    def word(self, name: str, words: Sequence[str]) -> str:
        """One of these; the first if it is not given."""
        text = self.text(name)
        if text is not None and text not in words:
            raise bad(name, f"{text!r} is not one of {', '.join(words)}")
        return text or words[0]

    def names(self, name: str) -> list[str]:
        text = self.text(name)
        return [] if text is None else [part.strip() for part in text.split(",")]

    def document(self, name: str) -> Any:
        text = self.text(name)
        return None if text is None else _document(name, text)

    def documents(self, name: str) -> list[Any]:
        return [_document(name, text) for text in self.all(name)]


def bad(name: str, problem: str) -> Problem:
    return Problem("bad-request", f"parameter {name}: {problem}")


def _document(name: str, text: str) -> Any:
    try:
        return document_of(text.encode("utf-8", "surrogatepass"))
    except Unfit as error:
        raise bad(name, f"{error}; it is given as JSON") from None


# --- keys -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a view's key, to read keys by."""

    view: str
    names: tuple[str, ...]
    types: tuple[DataType, ...]

    def from_segments(self, segments: Sequence[str]) -> tuple[Any, ...]:
        """Of a path: one part for each column."""
        self._require(len(segments))
        documents = [from_segment(*pair) for pair in zip(self.types, segments, strict=True)]
        return self._typed(documents)

    def from_document(self, document: Any, *, partly: bool = False) -> tuple[Any, ...]:
        """Of JSON: a value, an array of all parts, or an object; `partly`: its first parts only."""
        parts = self._parts(document)
        if not partly or len(parts) > len(self.names):
            self._require(len(parts))
        return self._typed(parts)

    @property
    def have_order(self) -> bool:
        """Without one there are no pages: see `views/conditions.py`."""
        return not any(map(_has_array, self.types))

    def of_row(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.names)

    def _parts(self, document: Any) -> list[Any]:
        if isinstance(document, dict) and set(document) == set(self.names):
            return [document[name] for name in self.names]
        is_one = len(self.names) == 1 and not isinstance(self.types[0], Struct)
        if isinstance(document, list) and not (is_one and len(document) != 1):
            return document
        return [document]

    def _typed(self, documents: Sequence[Any]) -> tuple[Any, ...]:
        columns = zip(self.names, self.types, documents, strict=False)
        return tuple(typed_value(kind, one, name=name) for name, kind, one in columns)

    def _require(self, given: int) -> None:
        if given != len(self.names):
            raise Problem(
                "does-not-fit",
                f"view {self.view} is read by {', '.join(self.names)}: {len(self.names)} "
                f"values, not {given}",
            )


def key_columns(view: str, schema: Schema, key: tuple[str, ...]) -> KeyColumns:
    types = [field.type for name in key if (field := schema.field(name)) is not None]
    return KeyColumns(view, key, tuple(types))


def _has_array(kind: DataType) -> bool:
    if isinstance(kind, Struct):
        return any(_has_array(field.type) for field in kind)
    return isinstance(kind, ListOf)


def cursor_of(key: tuple[Any, ...]) -> str:
    """As `document_of` reads it: NaN and the infinities as texts."""
    return base64.urlsafe_b64encode(to_json(list(key))).decode().rstrip("=")


def from_cursor(columns: KeyColumns, cursor: str) -> tuple[Any, ...]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        document = document_of(text)
    except (binascii.Error, ValueError, Unfit):
        raise _no_cursor() from None
    if not isinstance(document, list):
        raise _no_cursor()
    return columns.from_document(document)


def _no_cursor() -> Problem:
    return Problem("does-not-fit", "parameter cursor: it is not one that a page has given")


# --- conditions, receipts ---------------------------------------------------------------------


def conditions_of(schema: Schema, document: Any) -> Mapping[str, Any]:
    """As `View.scan` takes them; what is no column, the view itself refuses."""
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise bad("where", 'it is a JSON object, such as {"count >=": 5}')
    return {text: _compared(schema, text, value) for text, value in document.items()}


def _compared(schema: Schema, text: str, document: Any) -> Any:
    asked = text.strip()
    column, operator = (asked, "=") if schema.field(asked) else split_condition(asked)
    kind = _type_of(schema, column)
    if kind is None:
        raise Unfit("the view has no such column to compare", path=text)
    if operator == "in":
        kind = ListOf(kind)
    return typed_value(kind, document, name=text)


def _type_of(schema: Schema, path: str) -> DataType | None:
    """`window.start` is a field of the column `window`; a name may have a dot of its own."""
    whole = schema.field(path)
    if whole is not None:
        return whole.type
    first, _, rest = path.partition(".")
    outer = schema.field(first)
    if not rest or outer is None or not isinstance(outer.type, Struct):
        return None
    return _type_of(outer.type, rest)


def receipts_of(texts: Iterable[str]) -> list[Receipt]:
    found = [_receipt(part.strip()) for text in texts for part in text.split(",")]
    if len(found) > RECEIPTS_MAX:
        raise bad("after", f"{len(found)} receipts: {RECEIPTS_MAX} at most")
    return found


def _receipt(text: str) -> Receipt:
    matched = RECEIPT.fullmatch(text)
    if matched is None:
        raise bad("after", f"{text!r} is not topic:partition:offset")
    return Receipt(matched["topic"], int(matched["partition"]), int(matched["offset"]))
