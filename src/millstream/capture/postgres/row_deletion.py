"""Deletes rows of a captured table by the keys of their changes: those of an outbox."""

import json
from collections.abc import Sequence
from typing import Final

from psycopg import sql

from millstream.capture.change import CapturedTable
from millstream.capture.postgres.catalogue import Catalogue
from millstream.capture.postgres.loading import written_type
from millstream.capture.table_names import split_name

KEYS_AT_ONCE: Final = 500


def delete_rows(catalogue: Catalogue, table: CapturedTable, keys: Sequence[bytes]) -> None:
    for start in range(0, len(keys), KEYS_AT_ONCE):
        some = keys[start : start + KEYS_AT_ONCE]
        catalogue.connection.execute(deletion(table, some))


def deletion(table: CapturedTable, keys: Sequence[bytes]) -> sql.Composed:
    """Has no parameters: with them, a % in a name would be taken for one."""
    comma = sql.SQL(", ")
    return sql.SQL("DELETE FROM {} WHERE ({}) IN ({})").format(
        sql.Identifier(*split_name(table.name)),
        comma.join(map(sql.Identifier, table.key)),
        comma.join(sql.SQL("({})").format(comma.join(_values(table, key))) for key in keys),
    )


def _values(table: CapturedTable, key: bytes) -> list[sql.Composed]:
    types = {column.name: column.database_type for column in table.columns}
    given = json.loads(key)
    return [
        sql.SQL("{}::{}").format(sql.Literal(str(given[name])), written_type(types[name]))
        for name in table.key
    ]
