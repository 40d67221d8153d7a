"""The views of an App: which store each is in, and what is said of one that is not there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream import App, stores
from millstream.declared_views import NoHistoryThere, UnknownView
from millstream.schemas.declaration import schema_of
from millstream.views.store import Home, ViewStore
from millstream.views.stores.sqlite.file import SqliteStore
from tests.contracts.view_store_contract import COUNTS, receipt, rows


@pytest.fixture
def app(tmp_path: Path) -> App:
    found = App("shop", data=tmp_path / "shop", brokers="127.0.0.1:1")
    found.topic("clicks", schema="url STRING")
    return found


class Elsewhere:
    """A store of the application's own."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, tuple[str, ...], Home]] = []

    def open(self, view: str, key: tuple[str, ...], home: Home) -> ViewStore:
        self.opened.append((view, key, home))
        return SqliteStore(home.data / "elsewhere.sqlite", view=view, key=key)


def declare(app: App, name: str, **terms: Any) -> None:
    app.view(key="url", name=name, inputs={"clicks": "clicks"}, **terms)(lambda clicks: clicks)


def test_a_view_is_in_sqlite_if_nothing_else_is_said(app: App) -> None:
    declare(app, "counts")
    assert app.views.store("counts").place == str(app.data / "views" / "counts.sqlite")
    declare(app, "others", store=stores.Sqlite(), history="7 days")
    assert app.views.names == ["counts", "others"]


def test_a_view_is_in_the_store_that_was_chosen(app: App) -> None:
    chosen = Elsewhere()
    declare(app, "counts", store=chosen)
    assert app.views.store("counts").place == str(app.data / "elsewhere.sqlite")
    ((view, key, home),) = chosen.opened
    assert (view, key, home.app, home.data) == ("counts", ("url",), "shop", app.data)
    assert home.client["bootstrap.servers"] == "127.0.0.1:1"


def test_a_history_is_refused_where_none_is_kept(app: App) -> None:
    declare(app, "counts", store=Elsewhere(), history="7 days")
    with pytest.raises(NoHistoryThere, match=r"view counts: history= is kept by stores\.Sqlite"):
        app.view("counts")


def test_a_view_that_is_not_there_is_told_with_the_nearest_name(app: App) -> None:
    declare(app, "clicks_per_url")
    with pytest.raises(UnknownView, match=r"no view 'click_per_url' .*Did you mean clicks_per_url"):
        app.view("click_per_url")


def test_a_process_that_declares_no_views_can_read_those_in_sqlite(app: App) -> None:
    writer = SqliteStore(app.data / "views" / "counts.sqlite", view="counts", key=["url"]).writer(1)
    epoch = writer.claim("counts", schema_of(COUNTS))
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    writer.close()
    with app.view("counts") as view:
        assert view.get("/") == {"url": "/", "count": 1}


def test_a_name_is_no_way_into_the_views_of_another_app(app: App, tmp_path: Path) -> None:
    secret = tmp_path / "bank" / "views" / "secret.sqlite"
    writer = SqliteStore(secret, view="secret", key=["url"]).writer(1)
    writer.claim("secret", schema_of(COUNTS))
    writer.close()
    (app.data / "views").mkdir(parents=True)
    for name in ("../../bank/views/secret", str(secret.with_suffix(""))):
        with pytest.raises(UnknownView, match="app shop has no view"):
            app.view(name)
        with pytest.raises(UnknownView, match="app shop has no view"):
            app.jobs.drop(name)
    assert secret.exists()


def test_the_names_of_stores_need_no_driver() -> None:
    code = (
        "import sys; from millstream import stores; stores.Sqlite(); "
        "drivers = {'psycopg', 'redis', 'deltalake', 'tantivy', 'duckdb'} & set(sys.modules); "
        "sys.exit(str(drivers) if drivers else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
