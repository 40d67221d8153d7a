"""Deletes rows of a captured table by the keys of their changes: those of an outbox."""

import json
from collections.abc import Sequence

from psycopg import sql

from millstream.capture.change import CapturedTable
from millstream.capture.postgres.catalogue import Catalogue
from millstream.capture.postgres.loading import written_type


def delete_rows(catalogue: Catalogue, table: CapturedTable, keys: Sequence[bytes]) -> None:
    types = {column.name: column.database_type for column in table.columns}
    schema, _, name = table.name.partition(".")
    compared = [
        sql.SQL("{} = %s::{}").format(sql.Identifier(column), written_type(types[column]))
        for column in table.key
    ]
    statement = sql.SQL("DELETE FROM {} WHERE {}").format(
        sql.Identifier(schema, name), sql.SQL(" AND ").join(compared)
    )
    rows = [[str(value) for value in json.loads(key).values()] for key in keys]
    with catalogue.connection.cursor() as cursor:
        cursor.executemany(statement, rows)
