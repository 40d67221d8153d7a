"""What a database lacks before it can be captured by its log. Changes nothing."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from millstream.capture.postgres.catalogue import (
    DEFAULT_SCHEMA,
    Catalogue,
    TableFacts,
    split_name,
)
from millstream.capture.postgres.slot import Slot
from millstream.capture.source import Finding
from millstream.capture.table_names import full_name

VERSION_MIN: Final = 130000
MESSAGES_SINCE: Final = 140000
_TABLE_KINDS: Final = frozenset("rp")
_SERVER: Final = """
SELECT current_setting('wal_level'), pg_is_in_recovery(), current_setting('server_encoding'),
       current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_stat_replication),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size')
"""
# Some hosts give a role to be a member of, instead of the attribute.
_LOGIN: Final = """
SELECT current_user, rolsuper,
       rolsuper OR rolreplication OR EXISTS (
         SELECT FROM pg_roles r WHERE r.rolname = 'rds_replication'
            AND pg_has_role(current_user, r.oid, 'MEMBER')),
       has_database_privilege(current_database(), 'CREATE'), current_database()
  FROM pg_roles WHERE rolname = current_user
"""
_CHILDREN: Final = """
SELECT n.nspname::text, c.relname::text FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE i.inhparent = %s AND NOT c.relispartition ORDER BY 1, 2
"""
DEFERRABLE_KEY: Final = """
SELECT conname::text FROM pg_constraint WHERE conrelid = %s AND contype = 'p' AND condeferrable
"""


def findings(catalogue: Catalogue, slot: Slot, tables: Sequence[str]) -> list[Finding]:
    if catalogue.server_version < VERSION_MIN:
        version = catalogue.server_version // 10000
        return [Finding(what=f"the server is PostgreSQL {version}", mend="use 13 or newer")]
    login = catalogue.ask(_LOGIN)[0]
    has_slot, has_publication = slot.state() is not None, slot.has_publication()
    return [
        *_of_server(catalogue.ask(_SERVER)[0], has_slot=has_slot),
        *_of_login(login, has_publication=has_publication, server=catalogue.server_version),
        *_of_tables(catalogue, tables, login),
    ]


def findings_of(catalogue: Catalogue, tables: Sequence[str]) -> list[Finding]:
    """Of these tables alone: others may be gone, and the server is known to be fit."""
    return [*_of_tables(catalogue, tables, catalogue.ask(_LOGIN)[0])]


def _of_server(row: Sequence[Any], *, has_slot: bool) -> Iterator[Finding]:
    wal_level, is_standby, encoding, slots_max, slots, senders_max, senders, kept_max = row
    if is_standby:
        yield Finding(what="the server is a standby", mend="capture its primary")
    if wal_level != "logical":
        yield Finding(
            what=f"wal_level is {wal_level}, and must be logical",
            mend="ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server",
        )
    if not has_slot and slots >= slots_max:
        yield Finding(
            what=f"all {slots_max} replication slots are in use",
            mend=f"ALTER SYSTEM SET max_replication_slots = {slots_max + 5}; -- then restart it",
        )
    if not has_slot and senders >= senders_max:
        yield Finding(
            what=f"all {senders_max} WAL senders are in use",
            mend=f"ALTER SYSTEM SET max_wal_senders = {senders_max + 5}; -- then restart it",
        )
    if encoding == "SQL_ASCII":
        yield Finding(
            what="the database's encoding is SQL_ASCII: nobody knows what its texts mean",
            mend="CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )
    if kept_max == -1:
        yield Finding(
            what="max_slot_wal_keep_size has no limit: a capture that stays away fills the disk",
            mend="ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();",
            is_fatal=False,
        )


def _of_login(row: Sequence[Any], *, has_publication: bool, server: int) -> Iterator[Finding]:
    user, is_superuser, may_replicate, may_create, database = row
    if not may_replicate:
        yield Finding(
            what=f"the role {user} may not replicate", mend=f'ALTER ROLE "{user}" REPLICATION;'
        )
    if not may_create and not has_publication:
        yield Finding(
            what=f"the role {user} may not make a publication",
            mend=f'GRANT CREATE ON DATABASE "{database}" TO "{user}";',
        )
    if not is_superuser:
        yield Finding(
            what=f"the role {user} is no superuser, so it cannot make an event trigger: a table "
            "that is rewritten (a column's type changes, a volatile default) is not seen, nor "
            "other DDL that changes old rows: docs/reference/schema_changes.md lists it",
            mend="after such a change: millstream capture reload; or capture as a superuser",
            is_fatal=False,
        )
    elif server < MESSAGES_SINCE:
        yield Finding(
            what="PostgreSQL 13 sends no messages: tables that are rewritten are not seen",
            mend="after a change of a column's type: millstream capture reload; or use 14",
            is_fatal=False,
        )


def _of_tables(
    catalogue: Catalogue, names: Sequence[str], login: Sequence[Any]
) -> Iterator[Finding]:
    found = {(facts.schema, facts.name): facts for facts in catalogue.tables(names)}
    for name in names:
        facts = found.get(split_name(name))
        if facts is None:
            yield of_missing(catalogue, name, f" in the database {login[4]}")
        elif facts.kind not in _TABLE_KINDS or facts.persistence != "p":
            yield Finding(
                what=f"{facts.full_name} is not an ordinary table: its changes are not logged",
                mend="capture the tables that it is made of; or ALTER TABLE ... SET LOGGED",
            )
        else:
            yield from _of_table(facts, login)
            yield from _of_key(facts, catalogue.one(DEFERRABLE_KEY, [facts.oid]))
            yield from of_children(catalogue, facts, names)


def of_missing(catalogue: Catalogue, name: str, where: str = "") -> Finding:
    """A dot may be part of a table's name, in place of what ends its schema."""
    whole = full_name(DEFAULT_SCHEMA, name)
    is_whole = "." in name and bool(catalogue.tables([whole]))
    return Finding(
        what=f"there is no table {name}{where}",
        mend=f"name it {whole}" if is_whole else "name it with its schema, as in sales.orders",
    )


def of_children(catalogue: Catalogue, facts: TableFacts, names: Sequence[str]) -> Iterator[Finding]:
    """Whose rows are in an answer to `SELECT * FROM parent`, but not in its topic."""
    captured = {*map(split_name, names)}
    left = [child for child in catalogue.ask(_CHILDREN, [facts.oid]) if child not in captured]
    if left:
        told = ", ".join(full_name(*child) for child in left)
        yield Finding(
            what=f"{told} inherit from {facts.full_name}: their rows are not captured with it",
            mend=" ".join(f"--table '{full_name(*child)}'" for child in left),
            is_fatal=False,
        )


def _of_key(facts: TableFacts, deferrable: str | None) -> Iterator[Finding]:
    if deferrable is not None:
        yield Finding(
            what=f"{facts.full_name}: with the deferrable key {deferrable} two rows may have one "
            "key inside of a transaction, and changes by key would mix them up",
            mend=key_made_anew(facts, deferrable),
        )


def key_made_anew(facts: TableFacts, constraint: str) -> str:
    """PostgreSQL does not alter a key so."""
    columns = ", ".join(f'"{column}"' for column in facts.key)
    table = f'"{facts.schema}"."{facts.name}"'
    return f'ALTER TABLE {table} DROP CONSTRAINT "{constraint}", ADD PRIMARY KEY ({columns});'


def _of_table(facts: TableFacts, login: Sequence[Any]) -> Iterator[Finding]:
    user, is_superuser = login[:2]
    table = f'"{facts.schema}"."{facts.name}"'
    if not facts.is_readable:
        yield Finding(
            what=f"the role {user} may not read {facts.full_name}",
            mend=f'GRANT SELECT ON {table} TO "{user}";',
        )
    if not facts.is_owned and not is_superuser:
        yield Finding(
            what=f"the role {user} does not own {facts.full_name}, and so cannot publish it",
            mend=f'ALTER TABLE {table} OWNER TO "{user}"; -- or GRANT the owner\'s role to it',
        )
    if facts.is_filtered:
        yield Finding(
            what=f"row security hides rows of {facts.full_name} from the role {user}",
            mend=f'ALTER ROLE "{user}" BYPASSRLS;',
        )
    if facts.identity == "n" or (facts.identity == "d" and not facts.key):
        yield Finding(
            what=f"{facts.full_name} has no replica identity: once it is captured, the server "
            "refuses its updates and deletes",
            mend=f"ALTER TABLE {table} ADD PRIMARY KEY (...); "
            f"-- or: ALTER TABLE {table} REPLICA IDENTITY FULL;",
        )
