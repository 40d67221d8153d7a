"""What a database lacks before it can be captured by triggers. Changes nothing."""

from collections.abc import Iterator, Sequence
from typing import Final

from millstream.capture.postgres.catalogue import Catalogue, TableFacts, split_name
from millstream.capture.postgres.checks import (
    DEFERRABLE_KEY,
    key_made_anew,
    of_children,
    of_missing,
)
from millstream.capture.postgres_triggers.statements import schema_name
from millstream.capture.source import Finding

VERSION_MIN: Final = 130000
_TABLE_KINDS: Final = frozenset("rp")
_SERVER: Final = """
SELECT pg_is_in_recovery(), current_setting('server_encoding'), current_user::text,
       current_database()::text, has_database_privilege(current_database(), 'CREATE'),
       EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)
"""
_TRIGGER_RIGHT: Final = "SELECT has_table_privilege(%s::oid, 'TRIGGER')"


def findings(catalogue: Catalogue, capture: str, tables: Sequence[str]) -> list[Finding]:
    if catalogue.server_version < VERSION_MIN:
        version = catalogue.server_version // 10000
        return [Finding(what=f"the server is PostgreSQL {version}", mend="use 13 or newer")]
    return [*_of_server(catalogue, capture), *_of_tables(catalogue, tables)]


def _of_server(catalogue: Catalogue, capture: str) -> Iterator[Finding]:
    row = catalogue.ask(_SERVER, [schema_name(capture)])[0]
    is_standby, encoding, user, database, may_create, is_made = row
    if is_standby:
        yield Finding(what="the server is a standby", mend="capture its primary")
    if encoding == "SQL_ASCII":
        yield Finding(
            what="the database's encoding is SQL_ASCII: nobody knows what its texts mean",
            mend="CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )
    if not may_create and not is_made:
        yield Finding(
            what=f"the role {user} may not make a schema in {database}",
            mend=f'GRANT CREATE ON DATABASE "{database}" TO "{user}";',
        )


def _of_tables(catalogue: Catalogue, names: Sequence[str]) -> Iterator[Finding]:
    found = {(facts.schema, facts.name): facts for facts in catalogue.tables(names)}
    for name in names:
        facts = found.get(split_name(name))
        if facts is None:
            yield of_missing(catalogue, name)
        elif facts.kind not in _TABLE_KINDS:
            yield Finding(
                what=f"{facts.full_name} is not an ordinary table",
                mend="capture the tables that it is made of",
            )
        else:
            yield from _of_table(catalogue, facts)
            yield from of_children(catalogue, facts, names)


def _of_table(catalogue: Catalogue, facts: TableFacts) -> Iterator[Finding]:
    table, user = f'"{facts.schema}"."{facts.name}"', catalogue.connection.info.user
    if not facts.is_readable:
        yield Finding(
            what=f"the role {user} may not read {facts.full_name}",
            mend=f'GRANT SELECT ON {table} TO "{user}";',
        )
    if not catalogue.one(_TRIGGER_RIGHT, [facts.oid]):
        yield Finding(
            what=f"the role {user} may not make triggers on {facts.full_name}",
            mend=f'GRANT TRIGGER ON {table} TO "{user}";',
        )
    if not facts.is_owned:
        yield Finding(
            what=f"the role {user} does not own {facts.full_name}: what is written in a session "
            "with session_replication_role = replica is not seen",
            mend=f'ALTER TABLE {table} OWNER TO "{user}"; -- or GRANT the owner\'s role to it',
            is_fatal=False,
        )
    if facts.is_filtered:
        yield Finding(
            what=f"row security hides rows of {facts.full_name} from the role {user}",
            mend=f'ALTER ROLE "{user}" BYPASSRLS;',
        )
    if facts.kind == "p":
        yield Finding(
            what=f"{facts.full_name} is partitioned: what is written to a partition by its own "
            "name is not seen",
            mend="write to the table itself; after such a write: millstream capture reload",
            is_fatal=False,
        )
    deferrable = catalogue.one(DEFERRABLE_KEY, [facts.oid])
    if deferrable is not None:
        yield Finding(
            what=f"{facts.full_name}: with the deferrable key {deferrable} two transactions may "
            "write one key side by side, and are handed over in the order of their writes",
            mend=key_made_anew(facts, deferrable),
            is_fatal=False,
        )
