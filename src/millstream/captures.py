"""The captures of an App, joined to what they need: the broker, the database, jobs that read them.

Their tables are inputs of jobs by name; what columns these have is asked of the database when a
job first needs it, or looked up in `_captures` where the database does not answer. How changes are
captured is in `capture/`, how their processes live in `capture_processes.py`.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from millstream.base.declared import BadDeclaration, DeclaredTable
from millstream.base.errors import MillstreamError
from millstream.base.near_names import did_you_mean, there_are
from millstream.base.schema import Field, Struct
from millstream.capture.approval import Approval
from millstream.capture.definition import VARIABLE, CaptureDefinition, absolute_url, resolve_url
from millstream.capture.table_names import is_named, split_name
from millstream.capture_processes import CaptureOrder, CaptureProcesses
from millstream.processing.jobs.catalog import Catalog

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.capture.change import CapturedTable
    from millstream.capture.change_stream import ChangeStream
    from millstream.capture.position_record import CaptureRecords

Tables = Iterable[str] | Mapping[str, str]
WAIT_SECONDS = 0.5
POSTGRES_SCHEMES = ("postgres", "postgresql")


class UnknownTable(BadDeclaration):
    def __init__(self, *, app: str, table: str, known: Iterable[str]) -> None:
        known = sorted(known)
        told = f"app {app} captures no table {table!r} (there are: {there_are(known)})"
        hint = did_you_mean(table, known, otherwise="Declare it with app.capture(url, tables=...)")
        super().__init__(f"{told}. {hint}")
        self.app, self.table = app, table


class TableNotFound(BadDeclaration):
    def __init__(self, *, capture: str, table: str, known: Iterable[str]) -> None:
        super().__init__(
            f"capture {capture}: its database has no table {table!r} that is captured (there are: "
            f"{there_are(known)})"
        )
        self.capture, self.table = capture, table


class NoKey(BadDeclaration):
    def __init__(self, *, table: str) -> None:
        super().__init__(
            f"{table} has no primary key, so no change says which row it is of: it can be read by "
            "app.changes, but not by jobs. Give it a key"
        )
        self.table = table


class NotOwnFormat(BadDeclaration):
    def __init__(self, *, capture: str, table: str) -> None:
        super().__init__(
            f"{table}: the capture {capture} writes its topics as Debezium does, for other "
            "consumers. Declare the topic with its columns, app.table(TOPIC, schema=..., key=..., "
            "encoding='debezium'), or capture the table once more without format='debezium'"
        )
        self.capture, self.table = capture, table


class NoArrowFrom(BadDeclaration):
    def __init__(self, *, capture: str, scheme: str) -> None:
        super().__init__(
            f"capture {capture}: whole tables come as Arrow from PostgreSQL, not from {scheme}: "
            "make a view of the table, and read that with .arrow()"
        )
        self.capture, self.scheme = capture, scheme


class Capture:
    """A database as an application declared it. `names`: what each table is called here."""

    def __init__(
        self,
        definition: CaptureDefinition,
        url: str,
        names: Mapping[str, str],
        *,
        arrow: "Callable[[str], pa.Table]",
    ) -> None:
        self.name, self.definition, self.names = definition.name, definition, names
        self.url = url  # may have a password: not for messages
        self.arrow = arrow

    def __repr__(self) -> str:
        return f"<Capture {self.name} of {', '.join(self.definition.tables)}>"


class Captures:
    """Those of one App."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        app: str,
        client_config: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._catalog, self._app, self._client_config = catalog, app, client_config
        self.declared: dict[str, Capture] = {}
        self._tables: dict[str, Capture] = {}
        self._found: dict[str, DeclaredTable] = {}
        self._processes: CaptureProcesses | None = None
        self._stopping = threading.Event()

    @property
    def tables(self) -> list[str]:
        """By the names that jobs and readers call them."""
        return list(self._tables)

    def declare(self, url: str, *, tables: Tables, name: str | None, **terms: Any) -> Capture:
        names, url = names_of(tables), absolute_url(url, os.getcwd())
        called = name or database_in(url)
        kept, given = password_apart(called, url)
        definition = CaptureDefinition(name=called, url=kept, tables=tuple(names.values()), **terms)
        if called in self.declared:
            raise BadDeclaration(f"two captures with the name {called}: give one of them name=")
        found = Capture(definition, given, names, arrow=self.arrow)
        for one in names:
            self._catalog.declare_captured(one, partial(self.table, one))
        self.declared[called] = found
        self._tables |= dict.fromkeys(names, found)
        return found

    # --- tables -------------------------------------------------------------------------------

    def table(self, name: str) -> DeclaredTable:
        """As a job reads it: by its columns when it was first asked for."""
        if name not in self._found:
            self._require_own_format(name)
            partitions = self._capture(name).definition.partitions
            found = self._captured(name, newest=True)
            known = self._kept(self._capture(name)).schemas.values()
            self._found[name] = declared_of(found, partitions, known)
        return self._found[name]

    def changes(
        self, table: str, *, since: str | None, follow: bool = True, timeout_s: float | None = None
    ) -> "ChangeStream":
        from millstream.capture.change_stream import ChangeStream

        self._require_own_format(table)
        topic = self._captured(table, newest=False).topic
        client = dict(self._client_config())
        return ChangeStream(client, topic, since=since, follow=follow, timeout_s=timeout_s)

    def arrow(self, table: str) -> "pa.Table":
        """All rows of a table, as the database has them now: one snapshot, and no topic."""
        capture = self._capture(table)
        url = self._url(capture)
        if (scheme := urlsplit(url).scheme) not in POSTGRES_SCHEMES:
            raise NoArrowFrom(capture=capture.name, scheme=scheme)
        captured = self._captured(table, newest=True)
        from millstream.capture.load.arrow_load import loaded_table

        return loaded_table(url, captured, capture=capture.name)

    def _captured(self, name: str, *, newest: bool) -> "CapturedTable":
        """`newest`: the database is asked first; else only if nothing is kept of the table."""
        capture = self._capture(name)
        table, others = capture.names[name], capture.definition.tables
        if not newest and (kept := named(table, self._kept(capture).tables.values(), others)):
            return kept
        try:
            there = self._asked(capture)
        except MillstreamError:
            there = list(self._kept(capture).tables.values())
            if not there:
                raise
        found = named(table, there, others)
        if found is None:
            known = [one.name for one in there]
            raise TableNotFound(capture=capture.name, table=table, known=known)
        return found

    def _require_own_format(self, table: str) -> None:
        capture = self._capture(table)
        if capture.definition.format == "debezium":
            raise NotOwnFormat(capture=capture.name, table=table)

    def _capture(self, table: str) -> Capture:
        found = self._tables.get(table)
        if found is None:
            raise UnknownTable(app=self._app, table=table, known=self._tables)
        return found

    def _asked(self, capture: Capture) -> "list[CapturedTable]":
        from millstream.capture.opening import open_source

        known = self._kept(capture).schemas.values()
        source = open_source(capture.definition, url=self._url(capture), known=known)
        with contextlib.closing(source):
            return source.tables()

    def _url(self, capture: Capture) -> str:
        return resolve_url(capture.name, capture.url, os.environ)

    def _kept(self, capture: Capture) -> "CaptureRecords":
        from millstream.capture.control import CaptureControl
        from millstream.capture.position_record import CaptureRecords

        there = CaptureControl(dict(self._client_config())).captures()
        return there.get(capture.name, CaptureRecords())

    # --- running ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self, *, once: bool = False) -> Iterator[None]:
        """The captures run while this is open. `once`: they have caught up when it opens."""
        if not self.declared:
            yield
            return
        self._found.clear()  # tables may have changed since
        self._stopping.clear()
        self._define()
        processes = self._processes = CaptureProcesses(self._orders(once=once))
        if self._stopping.is_set():  # meanwhile
            processes.stop()
        processes.start()
        try:
            if once:
                processes.wait()
                processes.require_well()
            yield
        finally:
            processes.stop()
            self._processes = None
        processes.require_well()

    def wait(self) -> None:
        """Until all have ended, or `stop`."""
        while self._processes is not None and not self._processes.wait(WAIT_SECONDS):
            pass

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called while they ran."""
        return self._processes is not None and self._processes.is_stopping

    @property
    def pids(self) -> dict[str, int]:
        """The process of each capture that runs now."""
        return {} if self._processes is None else self._processes.pids

    def stop(self) -> None:
        self._stopping.set()
        if self._processes is not None:
            self._processes.stop()

    def _define(self) -> None:
        from millstream.capture.control import CaptureControl

        control = CaptureControl(dict(self._client_config()))
        for capture in self.declared.values():
            control.add(capture.definition)

    def _orders(self, *, once: bool) -> list[CaptureOrder]:
        client = dict(self._client_config())
        return [
            CaptureOrder(
                capture=one.name,
                client=client,
                approval=Approval.of(one.definition).to_fields(),
                url=self._url(one),
                once=once,
            )
            for one in self.declared.values()
        ]


DEBEZIUM_TERMS: Mapping[str, str] = {
    "time": "time_mode",
    "decimal": "decimal_mode",
    "schemas": "has_schemas",
    "truncates": "has_truncates",
}


def debezium_terms(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """As a definition has them."""
    unknown = sorted(set(given or {}) - set(DEBEZIUM_TERMS))
    if unknown:
        raise BadDeclaration(
            f"app.capture: debezium= has {', '.join(unknown)}: known are "
            f"{', '.join(DEBEZIUM_TERMS)}"
        )
    return {DEBEZIUM_TERMS[name]: value for name, value in (given or {}).items()}


def names_of(tables: Tables) -> dict[str, str]:
    """What each table is called: as it was said, or by the last part of its name."""
    if isinstance(tables, Mapping):
        return dict(tables)
    given = [tables] if isinstance(tables, str) else list(tables)
    found: dict[str, str] = {}
    for table in given:
        name = split_name(table)[1]
        if name in found:
            raise BadDeclaration(
                f"two tables are called {name}, {found[name]} and {table}: give each a name, "
                f'tables={{"{name}": "{found[name]}", "other": "{table}"}}'
            )
        found[name] = table
    return found


def database_in(url: str) -> str:
    """The name of the database in a URL, which a capture has unless it is given another."""
    path = urlsplit(url).path.rstrip("/").rpartition("/")[2]
    found = path.partition(".")[0]
    if not found or VARIABLE.search(found):
        raise BadDeclaration("app.capture: give name=, as the URL does not name a database")
    return found


def password_apart(capture: str, url: str) -> tuple[str, str]:
    """The URL as it may be kept, and as it is used. A password that is in it stays here."""
    password = urlsplit(url).password
    if not password or VARIABLE.fullmatch(password):
        return url, url
    variable = f"{capture.upper().replace('-', '_')}_PASSWORD"
    return url.replace(f":{password}@", f":${{{variable}}}@", 1), url


def named(
    table: str, there: "Iterable[CapturedTable]", others: Sequence[str] = ()
) -> "CapturedTable | None":
    """By its full name; or without its schema, unless another one was meant by that name."""
    found = {one.name: one for one in there}
    if table in found:
        return found[table]
    ends = (one for one in found if is_named(one, table) and one not in others)
    return next((found[one] for one in ends), None)


def declared_of(
    table: "CapturedTable", partitions: int | None, known: "Iterable[CapturedTable]" = ()
) -> DeclaredTable:
    """`known`: all versions of all tables of the capture."""
    if not table.key:
        raise NoKey(table=table.name)
    from millstream.capture.log_writer import CONFIG

    schema = columns_of(table)
    versions = {one.version: columns_of(one) for one in known if one.name == table.name}
    return DeclaredTable(
        name=table.topic,
        schema=schema,
        key=table.key,
        encoding="debezium",
        partitions=partitions,
        options=dict(CONFIG),
        versions=versions | {table.version: schema},
    )


def columns_of(table: "CapturedTable") -> Struct:
    return Struct(tuple(Field(one.name, one.type) for one in table.columns))
