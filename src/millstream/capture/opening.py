"""Finds the source for a capture, by the scheme of its URL. Drivers are loaded when they are used.

postgresql://user:${PASSWORD}@host/database    its log; or triggers, with mode "triggers"
mariadb://... or mysql://...                   the binlog
sqlite:///path/to/file.db                      triggers
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from millstream.base.errors import Rejected
from millstream.capture.change import CapturedTable
from millstream.capture.definition import SQLITE, CaptureDefinition, require_readable
from millstream.capture.source import Source

Known = Iterable[CapturedTable]
Opener = Callable[[CaptureDefinition, str, Known], Source]


class UnknownDatabase(Rejected):
    def __init__(self, *, capture: str, scheme: str, mode: str) -> None:
        super().__init__(
            f"the capture {capture} cannot read {scheme or 'this'} (mode {mode}): a URL begins "
            f"with {', '.join(sorted({name for name, _ in SOURCES}))}"
        )
        self.capture, self.scheme, self.mode = capture, scheme, mode


class DriverMissing(Rejected):
    def __init__(self, *, scheme: str, module: str, extra: str) -> None:
        super().__init__(
            f"to capture {scheme} databases the module {module} is needed: "
            f"pip install 'millstream[{extra}]'"
        )
        self.scheme, self.module, self.extra = scheme, module, extra


def open_source(
    definition: CaptureDefinition,
    *,
    url: str,
    known: Known = (),
) -> Source:
    """`url`: as the operator gave it, with its variables filled in. The definition's own may have
    been written by anybody, and is not looked at. `known`: the versions of tables that former runs
    have seen."""
    require_readable(definition.name, url)
    scheme = urlsplit(url).scheme
    opener = SOURCES.get((scheme, definition.mode))
    if opener is None:
        raise UnknownDatabase(capture=definition.name, scheme=scheme, mode=definition.mode)
    try:
        return opener(definition, url, known)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(scheme, scheme)
        raise DriverMissing(scheme=scheme, module=error.name or "", extra=extra) from None


def _postgres(definition: CaptureDefinition, url: str, known: Known) -> Source:
    from millstream.capture.postgres.source import PostgresSource

    keeps_lsn = definition.format == "debezium"
    return PostgresSource(url, keeps_lsn=keeps_lsn, **_told(definition, "public", known))


def _postgres_triggers(definition: CaptureDefinition, url: str, known: Known) -> Source:
    from millstream.capture.postgres_triggers.source import PostgresTriggerSource

    return PostgresTriggerSource(url, **_told(definition, "public", known))


def _mariadb(definition: CaptureDefinition, url: str, known: Known) -> Source:
    from millstream.capture.mariadb.source import MariadbSource

    database = urlsplit(url).path.strip("/")
    return MariadbSource(url, **_told(definition, database, known))


def _sqlite(definition: CaptureDefinition, url: str, known: Known) -> Source:
    from millstream.capture.sqlite.source import SqliteSource

    path = unquote(url.removeprefix(SQLITE).partition("?")[0])
    return SqliteSource(Path(path), **_told(definition, "main", known))


def _told(definition: CaptureDefinition, schema: str, known: Known) -> dict[str, Any]:
    """What every source is told; `schema` is left out of the names of topics."""
    return {
        "capture": definition.name,
        "tables": definition.tables,
        "topic_of": partial(definition.topic_of, without=schema),
        "known": known,
    }


SOURCES: Final[Mapping[tuple[str, str], Opener]] = {
    ("postgresql", "log"): _postgres,
    ("postgres", "log"): _postgres,
    ("postgresql", "triggers"): _postgres_triggers,
    ("postgres", "triggers"): _postgres_triggers,
    ("mariadb", "log"): _mariadb,
    ("mysql", "log"): _mariadb,
    ("sqlite", "log"): _sqlite,
    ("sqlite", "triggers"): _sqlite,
}
EXTRAS: Final[Mapping[str, str]] = {"postgresql": "postgres", "mysql": "mariadb"}
