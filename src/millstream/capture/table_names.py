"""The full name of a table as one text, "public.orders", and its two parts. Pure.

The first dot ends the schema: the table `a.b` of the schema public is "public.a.b". A schema that
has a dot in it, or a quote, is written in double quotes, as SQL does: '"old.sales".orders'.
"""

import re
from typing import Final

_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')


def full_name(schema: str, table: str) -> str:
    first = _quoted(schema) if "." in schema or '"' in schema else schema
    second = _quoted(table) if table.startswith('"') else table
    return f"{first}.{second}"


def split_name(name: str, default: str = "") -> tuple[str, str]:
    """`default`: the schema of a name that has none."""
    quoted = _QUOTED.match(name)
    if quoted is None:
        schema, dot, table = name.partition(".")
        return (schema, _unquoted(table)) if dot else (default, name)
    if quoted.end() == len(name):
        return default, _unquoted(name)
    schema, dot, table = quoted[1].replace('""', '"'), name[quoted.end()], name[quoted.end() + 1 :]
    return (schema, _unquoted(table)) if dot == "." else (default, name)


def is_named(table: str, name: str) -> bool:
    """Whether a table with this full name is meant by that: in full, or without its schema."""
    schema, bare = split_name(table)
    given_schema, given = split_name(name)
    return name == bare or (given == bare and given_schema in ("", schema))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _unquoted(name: str) -> str:
    found = _QUOTED.fullmatch(name)
    return name if found is None else found[1].replace('""', '"')
