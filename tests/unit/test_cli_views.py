"""`millstream views` without Spark: an application's views listed, read, put back and dropped."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.base.ports import BatchReceipt
from millstream.cli import app
from millstream.commands.job_lines import left_text, line_of
from millstream.processing.jobs.checkpoints import JobDirectory, first_manifest, next_generation
from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.jobs.progress import JobProgress
from millstream.schemas.declaration import schema_of
from millstream.views.stores.sqlite.file import SqliteStore, view_file
from tests.contracts.view_store_contract import rows

CODE = """
import millstream

app = millstream.App("shop", data={data!r})
clicks = app.topic("clicks", schema="url STRING, at TIMESTAMP")

@app.view(key="url")
def per_url(clicks):
    return clicks.groupBy("url").count()

@app.view(key=["day", "url"])
def per_day(clicks):
    raise NotImplementedError
"""
COLUMNS = "url STRING, count BIGINT, tags MAP<DATE, DECIMAL(5, 2)>"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "shop.millstream"


@pytest.fixture
def shop(tmp_path: Path, data: Path) -> str:
    """The file of an app; its view per_url has two generations, the second one is served."""
    file = tmp_path / "shop.py"
    file.write_text(CODE.format(data=str(data)))
    directory = JobDirectory(data / "jobs" / "per_url", job="per_url")
    manifest = first_manifest("per_url", PlanShape(sources={}), "code", {})
    directory.begin(manifest)
    directory.checkpoint(1).mkdir()
    write_generation(data, 1, ("/", 1, None))
    building = next_generation(manifest, PlanShape(sources={}), "code", {})
    directory.begin(building)
    directory.checkpoint(2).mkdir()
    write_generation(data, 2, ("/", 7, None), ("/a", 5, {}), ("/b", None, None))
    directory.settle(building)
    return str(file)


def write_generation(data: Path, number: int, *found: tuple[object, ...]) -> None:
    store = SqliteStore(view_file(data, "per_url"), view="per_url", key=["url"])
    writer = store.writer(number)
    epoch = writer.claim("per_url", schema_of(COLUMNS))
    receipt = BatchReceipt(
        job="per_url", epoch=epoch, query=f"q{number}", batch=0, positions={"clicks": {0: 9, 1: 3}}
    )
    writer.write(receipt, rows(COLUMNS, *found))
    writer.serve()
    writer.close()


def output_of(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["views", *arguments])
    return found.exit_code, found.output.strip()


def test_the_views_of_an_app_are_listed_also_those_that_are_not_there_yet(
    shop: str, data: Path
) -> None:
    code, told = output_of("list", shop)
    assert code == 0
    assert told.splitlines() == [
        "VIEW     KEY       GENERATION  BATCH  STORE",
        f"per_url  url                2      0  {data}/views/per_url.sqlite",
        f"per_day  day, url           -      -  {data}/views/per_day.sqlite",
    ]
    first, second = json.loads(output_of("list", shop, "--json")[1])
    assert first["positions"] == {"clicks": {"0": 9, "1": 3}}
    assert (second["view"], second["generation"]) == ("per_day", None)


def test_a_view_is_shown_with_its_columns_and_generations(shop: str) -> None:
    code, told = output_of("show", shop, "per_url")
    assert code == 0
    assert told.splitlines()[1:] == [
        "  url STRING",
        "  count BIGINT",
        "  tags MAP<DATE, DECIMAL(5,2)>",
        "GENERATION  SERVED  BATCH  READ TO",
        "         1  no          0  clicks:0:9, clicks:1:3",
        "         2  yes         0  clicks:0:9, clicks:1:3",
    ]
    assert "Not there yet: run its job once." in output_of("show", shop, "per_day")[1]


@pytest.mark.parametrize(
    ("asked", "urls"),
    [
        ([], ["/", "/a", "/b"]),
        (["--key", "/a"], ["/a"]),
        (["--key", "/nowhere"], []),
        (["--where", "count >= 6"], ["/"]),
        (["--where", "count = null"], ["/b"]),
        (["--where", "url in /a, /b", "--where", "count != null"], ["/a"]),
        (["--where", "url starts with /", "--order-by", "-url", "--limit", "2"], ["/b", "/a"]),
    ],
)
def test_rows_are_found_by_key_and_by_conditions(
    shop: str, asked: list[str], urls: list[str]
) -> None:
    found = CliRunner().invoke(app, ["views", "query", shop, "per_url", *asked, "--json"])
    assert found.exit_code == 0, found.output
    assert [json.loads(line)["url"] for line in found.stdout.splitlines()] == urls


def test_rows_are_printed_as_a_table(shop: str) -> None:
    assert output_of("query", shop, "per_url", "--limit", "2") == (
        0,
        "URL  COUNT  TAGS\n/        7  -\n/a       5  {}\n2 rows",
    )


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (["query", "per_ulr"], 1, "has no view 'per_ulr' (there are: per_day, per_url). Did you"),
        (["query", "per_url", "--where", "count"], 2, "Give COLUMN OPERATOR VALUE, such as"),
        (["query", "per_url", "--where", "n = 1"], 1, "view per_url has no column n to compare"),
        (["query", "per_url", "--where", "count > x"], 1, "view per_url: "),
        (["query", "per_day"], 1, "view per_day is not there yet"),
        (["rollback", "per_day", "--yes"], 1, "has no generation before this one to go back to"),
        (["drop", "per_url", "--generation", "2", "--yes"], 1, "is the one that readers see"),
        (["drop", "per_url"], 2, "Pass --yes"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    shop: str, asked: list[str], code: int, message: str
) -> None:
    command, *others = asked
    found = output_of(command, shop, *others)
    assert found[0] == code
    assert message in found[1]
    assert len(found[1].splitlines()) <= 2


def test_a_view_is_rolled_back_and_forth(shop: str, data: Path) -> None:
    assert output_of("rollback", shop, "per_url", "--yes") == (
        0,
        "Readers of view per_url see generation 1 now.",
    )
    assert (
        json.loads(output_of("query", shop, "per_url", "--json")[1].splitlines()[0])["count"] == 1
    )
    manifest = JobDirectory(data / "jobs" / "per_url", job="per_url").manifest()
    assert manifest is not None
    assert (manifest.generation, manifest.previous) == (1, 2)
    output_of("rollback", shop, "per_url", "--yes")
    assert (
        json.loads(output_of("query", shop, "per_url", "--json")[1].splitlines()[0])["count"] == 7
    )


def test_a_view_whose_job_runs_is_left_alone(shop: str, data: Path) -> None:
    with JobDirectory(data / "jobs" / "per_url", job="per_url").held():
        for command in ("rollback", "drop"):
            code, told = output_of(command, shop, "per_url", "--yes")
            assert (code, "job per_url runs already" in told) == (75, True)
    assert output_of("query", shop, "per_url")[0] == 0


def test_a_view_is_dropped_with_what_its_job_knows(shop: str, data: Path) -> None:
    assert output_of("drop", shop, "per_url", "--generation", "1", "--yes")[0] == 0
    assert output_of("drop", shop, "per_url", "--yes") == (0, "Removed view per_url.")
    assert list((data / "views").iterdir()) == []
    assert JobDirectory(data / "jobs" / "per_url", job="per_url").manifest() is None


def test_an_estimate_is_by_the_rate_of_the_last_batch() -> None:
    job = JobProgress(job="per_url", is_building=True)
    assert left_text(job) == "starting"
    growing = JobProgress(
        job="per_url", is_building=True, batch=3, rows_per_second=50.0, lag={"clicks": 6000}
    )
    assert left_text(growing) == "about 2m left"
    done = JobProgress(job="per_url", is_building=True, batch=9, rows_per_second=50.0, left=0)
    assert left_text(done) == "comparing"
    assert "rebuilding as generation 2, about 2m left" in line_of(replace(growing, generation=2))
