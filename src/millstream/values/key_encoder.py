"""The key of a row, as the key of its record: what `processing/reading/table_rows.py` reads. Pure.

One column is its plain value: 7, ada, 2026-07-01T12:00:00Z; a text that would look like JSON is
quoted. Several columns, a struct or an array are a JSON object: {"shop":7,"item":"tea"}.
"""

import json
from collections.abc import Mapping
from typing import Any

from millstream.base.schema import BadSchema, DecimalOf, Scalar, Schema, Struct
from millstream.values.json_encoder import JsonEncoder


class KeyEncoder:
    """`key` names columns of `schema`, in the order that the key has them."""

    def __init__(self, schema: Schema, key: tuple[str, ...]) -> None:
        found = [schema.field(name) for name in key]
        fields = tuple(field for field in found if field is not None)
        if len(fields) != len(key):
            raise BadSchema(f"the key {', '.join(key)} is not in {schema.ddl}")
        self._schema, self._key = schema, key
        self._encoder = JsonEncoder(Struct(fields))
        self._is_plain = len(fields) == 1 and isinstance(fields[0].type, Scalar | DecimalOf)

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        return KeyEncoder, (self._schema, self._key)

    def encode(self, row: Mapping[str, Any]) -> bytes | None:
        """None if all of the key is null."""
        found = {name: row.get(name) for name in self._key}
        if all(value is None for value in found.values()):
            return None
        content = self._encoder.encode(found)
        return _plain(content) if self._is_plain else content


def _plain(document: bytes) -> bytes:
    """The value of an object with one field; a text is bare if it can be told from JSON."""
    (value,) = json.loads(document).values()
    if isinstance(value, str) and not _looks_like_json(value):
        return value.encode()
    return json.dumps(value, ensure_ascii=False).encode()


def _looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] == "{" or text[:1] == '"'
