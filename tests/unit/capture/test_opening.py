"""A URL says which database it is; what cannot be opened says what to do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from millstream.capture.definition import CaptureDefinition
from millstream.capture.opening import UnknownDatabase, open_source
from millstream.capture.source import Source


def definition(url: str, **told: object) -> CaptureDefinition:
    facts: dict[str, object] = {"name": "shop", "url": url, "tables": ("orders",)}
    return CaptureDefinition(**(facts | told))  # type: ignore[arg-type]


def opened(url: str, **told: object) -> Source:
    return open_source(definition(url, **told), url=url)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "the shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    return path


def test_a_file_of_sqlite_has_an_absolute_path_behind_four_slashes(file: Path) -> None:
    url = f"sqlite:///{str(file).replace(' ', '%20')}"
    with closing(opened(url)) as source:
        assert source.kind == "sqlite"
        assert [table.topic for table in source.tables()] == ["shop.orders"]


def test_a_path_may_be_relative(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    with closing(opened("sqlite:///the shop.db")) as source:
        assert [table.name for table in source.tables()] == ["main.orders"]


def test_the_url_of_the_definition_is_not_looked_at(file: Path) -> None:
    kept = definition("postgresql://db/shop")
    with closing(open_source(kept, url=f"sqlite:///{file}")) as source:
        assert source.kind == "sqlite"


@pytest.mark.parametrize(
    ("url", "mode"),
    [("oracle://db/shop", "log"), ("no url", "log"), ("mariadb://db/shop", "triggers")],
)
def test_an_unknown_database_is_refused_with_those_that_are_known(url: str, mode: str) -> None:
    with pytest.raises(UnknownDatabase, match=r"mariadb, mysql, postgres, postgresql, sqlite"):
        opened(url, mode=mode)
