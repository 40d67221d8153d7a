"""What goes wrong with the files of a view is for the server's log: no answer names a path."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream
from millstream import stores
from millstream.app import App
from millstream.base.ports import BatchReceipt
from millstream.commands.console.shown_app import ShownApp
from millstream.commands.http_terms import private_folders
from millstream.commands.served_app import ServedApp
from millstream.schemas.declaration import schema_of
from millstream.web.guard import EVERY_ANSWER
from millstream.web.limits import Limits
from tests.support.web_client import WebClient

SCHEMA = schema_of("url STRING, count BIGINT")
VIEW_PATHS = (
    "/v1/views",
    "/v1/views/counts",
    "/v1/views/counts/rows",
    "/v1/views/counts/rows/a",
    "/v1/views/counts/rows?key=%22a%22",
    "/v1/views/counts/rows?where=%7B%22count%22%3A1%7D",
    "/v1/views/counts/rows?after=clicks:0:999&timeout=0.1",
    "/v1/views/counts/changes?timeout=0.1",
    "/v1/views/counts/changes?since=nonsense&timeout=0.1",
)
STORES: Mapping[str, Callable[[Path], Any]] = {
    "sqlite": lambda folder: stores.Sqlite(),
    "parquet": lambda folder: stores.Parquet(folder / "views"),
    "delta": lambda folder: stores.Delta(folder / "views"),
    "search": lambda folder: stores.SearchIndex(text=["url"]),
}


def garbled(file: Path) -> None:
    file.write_bytes(b"\x00garbage" * 64)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def replaced_by_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


OTHER_PATHS: tuple[str, ...] = (
    *("/", "/health", "/health/live", "/openapi.json", "/v1/topics", "/v1/tables", "/nothing"),
    *("/console/", "/console/sign-in", "/console/nothing", "/" + "x" * 10_000),
)
DAMAGES = (garbled, emptied, cut, replaced_by_a_folder, Path.unlink)


def app_with_view(folder: Path, store: Any) -> App:
    app = millstream.App("shop", data=folder)
    app.topic("clicks", schema="user STRING NOT NULL, url STRING", key="user")

    @app.view(key="url", store=store)
    def counts(clicks: Any) -> Any:
        return clicks

    kept = app.views.store("counts")
    writer = kept.writer(1)
    epoch = writer.claim("job", SCHEMA)
    writer.serve()
    receipt = BatchReceipt(job="job", epoch=epoch, query="q", batch=0, positions={"clicks": {0: 1}})
    writer.write(receipt, pa.table({"url": ["a", "b"], "count": pa.array([1, 2], pa.int64())}))
    writer.close()
    return app


pytestmark = pytest.mark.full


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_BROKERS", "127.0.0.1:1")
    return tmp_path / "kept-in-secret"


@pytest.fixture
def serve() -> Iterator[Callable[[App], WebClient]]:
    with ExitStack() as opened:

        def start(app: App) -> WebClient:
            served: Any = ServedApp(app, Limits())
            shown = ShownApp(app)
            opened.callback(served.close)
            opened.callback(shown.close)
            folders = private_folders(app)
            return opened.enter_context(WebClient(served, console=shown, folders=folders))

        yield start


def require_no_path(text: str, data: Path) -> None:
    assert data.name not in text
    assert str(data.parent) not in text
    assert "Traceback" not in text
    assert 'File "' not in text


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_answer_about_a_damaged_view_names_a_path(
    store: str,
    damage: Callable[[Path], None],
    data: Path,
    serve: Callable[[App], WebClient],
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = app_with_view(data, STORES[store](data))
    whole = shutil.copytree(data, data.parent / "whole")
    files = [one.relative_to(whole) for one in sorted(whole.rglob("*")) if one.is_file()]
    assert files
    for file in files:
        shutil.rmtree(data)
        shutil.copytree(whole, data)
        damage(data / file)
        client = serve(app)
        for path in VIEW_PATHS:
            caplog.clear()
            answer = client.get(path)
            require_no_path(answer.text, data)
            if "id" in answer.json():
                assert answer.json()["id"] in caplog.text


@pytest.mark.parametrize("choice", [stores.Parquet, stores.Delta])
def test_a_store_with_a_folder_of_its_own_is_not_named_either(
    choice: Any, tmp_path: Path, serve: Callable[[App], WebClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the application gives as seen from where it runs; that has a space in its name."""
    monkeypatch.setenv("MILLSTREAM_BROKERS", "127.0.0.1:1")
    machine = tmp_path / "our secret machine"
    machine.mkdir()
    monkeypatch.chdir(machine)
    app = app_with_view(Path("data"), choice("hidden lake"))
    shutil.rmtree(machine / "hidden lake")
    client = serve(app)
    for path in (*VIEW_PATHS, "/health"):
        text = client.get(path).text
        assert "secret machine" not in text
        assert "hidden lake" not in text
        assert "machine/" not in text
        assert "lake/" not in text


def test_neither_health_nor_a_feed_nor_the_console_names_a_path(
    data: Path, serve: Callable[[App], WebClient], caplog: pytest.LogCaptureFixture
) -> None:
    app = app_with_view(data, stores.Sqlite())
    garbled(data / "views" / "counts.sqlite")
    client = serve(app)
    health = client.get("/health")
    assert health.status_code == 503
    require_no_path(health.text, data)
    told = re.search(r"the server's log has more: (\w+)", health.text)
    assert told is not None
    assert told[1] in caplog.text
    stream = client.get("/v1/views/counts/changes", {"Accept": "text/event-stream"})
    require_no_path(stream.text, data)
    page = client.get("/console/views/counts", {"Accept": "text/html"})
    require_no_path(page.text, data)


def test_no_answer_may_be_shown_within_a_page_of_another_site(
    data: Path, serve: Callable[[App], WebClient]
) -> None:
    client = serve(app_with_view(data, stores.Sqlite()))
    for path in (*VIEW_PATHS, *OTHER_PATHS):
        headers = client.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        for name in sorted(set(EVERY_ANSWER) - {"Content-Security-Policy", "Referrer-Policy"}):
            assert name in headers, path
    assert "frame-ancestors" in client.post("/v1/views").headers["content-security-policy"]
