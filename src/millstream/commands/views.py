"""`millstream views`: the views of an application, wherever they are kept: read, rebuilt, put back.

Each is a few lines around App. What a rebuild does is told in docs/guides/views.md.
"""

import json as json_text
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import MillstreamError
from millstream.base.positions import positions_text
from millstream.commands.job_lines import JobLines, left_text
from millstream.commands.options import BadOption, Json, Yes
from millstream.commands.output import confirm, counted, print_json, print_table, say
from millstream.commands.plain_help import PlainCommand

if TYPE_CHECKING:
    from millstream.app import App
    from millstream.base.schema import DataType
    from millstream.processing.jobs.progress import JobProgress
    from millstream.views.store import Generation, Row, ViewStore
    from millstream.views.verification import Verdict
    from millstream.views.view import View

app = typer.Typer(no_args_is_help=True, help="Views of an application: read, rebuild, roll back.")

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The Python file that makes the App; FILE:NAME if it makes several."
    ),
]
Name = Annotated[str, typer.Argument(metavar="VIEW", help="The name of a view.")]
Sample = Annotated[
    float,
    typer.Option(
        "--sample", metavar="PERCENT", min=0, max=100, help="Compare this part of the keys."
    ),
]
CONDITION = re.compile(
    r"(?P<column>.+?)(?P<operator>!=|<=|>=|=|<|>|\sin\s|\sstarts with\s)(?P<value>.*)"
)


@contextmanager
def opened(file: str) -> "Iterator[App]":
    from millstream.commands.app_file import load_app

    with closing(load_app(file)) as found:
        yield found


# --- list, show -------------------------------------------------------------------------------


@app.command("list", cls=PlainCommand)
def list_views(file: File, json: Json = False) -> None:
    """List the views of an application: where each is kept, and how far it is.

    Example: millstream views list shop.py
    """
    with opened(file) as found:
        facts = [_facts(found, name) for name in found.views.names]
    if json:
        print_json(facts)
        return
    rows = [
        [one["view"], ", ".join(one["key"]), one["generation"], one["batch"], one["store"]]
        for one in facts
    ]
    print_table(["VIEW", "KEY", "GENERATION", "BATCH", "STORE"], rows)


def _facts(found: "App", name: str) -> dict[str, Any]:
    """A store that does not answer is told in its line; the others are listed all the same."""
    store = found.views.store(name)
    facts: dict[str, Any] = {"view": name, "key": list(found.views.key(name)), "store": store.place}
    try:
        served = _served(store)
    except MillstreamError as error:
        return facts | {"generation": None, "batch": None, "positions": {}, "error": str(error)}
    return facts | {
        "generation": served.number if served else None,
        "batch": served.batch if served else None,
        "positions": served.positions if served else {},
    }


def _served(store: "ViewStore") -> "Generation | None":
    return next((one for one in store.generations() if one.is_served), None)


@app.command(cls=PlainCommand)
def show(file: File, view: Name, json: Json = False) -> None:
    """Show a view: its columns, its generations, and where each has read to.

    Example: millstream views show shop.py clicks_per_url
    """
    with opened(file) as found:
        store = found.views.store(view)
        there = store.generations()
        columns: dict[str, str] = {}
        if _served(store) is not None:
            with found.view(view) as reading:
                columns = {field.name: str(field.type) for field in reading.schema}
        facts = {
            "view": view,
            "key": list(found.views.key(view)),
            "store": store.place,
            "columns": columns,
            "generations": [_generation(one) for one in there],
        }
    if json:
        print_json(facts)
    else:
        _print_view(facts)


def _generation(one: "Generation") -> dict[str, Any]:
    return {
        "generation": one.number,
        "is_served": one.is_served,
        "batch": one.batch,
        "positions": {topic: dict(offsets) for topic, offsets in one.positions.items()},
    }


def _print_view(facts: dict[str, Any]) -> None:
    print(f"{facts['view']}, by {', '.join(facts['key'])}, in {facts['store']}")
    for name, kind in facts["columns"].items():
        print(f"  {name} {kind}")
    if not facts["generations"]:
        print("Not there yet: run its job once.")
        return
    rows = [
        [
            one["generation"],
            "yes" if one["is_served"] else "no",
            one["batch"],
            positions_text(one["positions"]),
        ]
        for one in facts["generations"]
    ]
    print_table(["GENERATION", "SERVED", "BATCH", "READ TO"], rows)


# --- query ------------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def query(
    file: File,
    view: Name,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="VALUE", help="The row of this key; one for each of its columns."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="CONDITION", help="Such as 'count >= 5'. Repeatable."),
    ] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option(
            "--order-by", metavar="COLUMN", help="-COLUMN: the greatest first. Repeatable."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rows at most.")] = 100,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="SELECT", help="Ask in SQL; the table is the view's name."),
    ] = None,
    json: Json = False,
) -> None:
    """Print rows of a view, by key, by conditions or by SQL.

    Example: millstream views query shop.py clicks_per_url --where 'count >= 5' --order-by=-count
    """
    if sql is not None and (key or where or order_by):
        raise BadOption(option="--sql", value=sql, allowed="it alone, without other questions")
    with opened(file) as found, found.view(view) as reading:
        if sql is not None:
            rows = reading.sql(sql)
        elif key:
            rows = [row for row in [_row_of(reading, key)] if row is not None]
        else:
            conditions = _conditions(reading, where or [])
            rows = reading.scan(where=conditions, order_by=order_by or (), limit=limit)
    _print_rows(rows, as_json=json)


def _row_of(reading: "View", key: Sequence[str]) -> "Row | None":
    types = [reading.schema.field(name) for name in reading.key]
    values = [
        value_from(field.type, text) if field else text
        for field, text in zip(types, key, strict=False)
    ]
    return reading.get(*values, *key[len(values) :])


def _conditions(reading: "View", texts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        parts = CONDITION.fullmatch(text)
        if parts is None:
            allowed = "COLUMN OPERATOR VALUE, such as 'count >= 5'"
            raise BadOption(option="--where", value=text, allowed=allowed)
        operator = parts["operator"].strip()
        kind = _type_of(reading, parts["column"].strip())
        value = parts["value"].strip()
        asked: Any = (
            [value_from(kind, one.strip()) for one in value.split(",")]
            if operator == "in"
            else value_from(kind, value)
        )
        found[f"{parts['column'].strip()} {operator}"] = asked
    return found


def _type_of(reading: "View", column: str) -> "DataType | None":
    from millstream.base.schema import Struct

    kind: DataType = Struct(reading.schema.fields)
    for name in column.split("."):
        field = kind.field(name) if isinstance(kind, Struct) else None
        if field is None:
            return None
        kind = field.type
    return kind


def value_from(kind: "DataType | None", text: str) -> Any:
    """What is typed for a column: text is text, all else is JSON where it can be."""
    from millstream.base.schema import Scalar

    if text == "null":
        return None
    if kind is Scalar.STRING:
        return text
    try:
        return json_text.loads(text)
    except ValueError:
        return text


def _print_rows(rows: "Sequence[Row]", *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            typer.echo(_json(row))
    elif rows:
        cells = [[_cell(value) for value in row.values()] for row in rows]
        print_table([name.upper() for name in rows[0]], cells)
    say(counted(len(rows), "row"))


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, int | str):
        return value
    return _json(value).strip('"')


def _json(value: Any) -> str:
    from millstream.values.json_encoder import plain_text

    return json_text.dumps(_named(value), ensure_ascii=False, default=plain_text)


def _named(value: Any) -> Any:
    """JSON has names for keys: those of a map may be dates or numbers."""
    if isinstance(value, dict):
        return {str(key): _named(one) for key, one in value.items()}
    return [_named(one) for one in value] if isinstance(value, list) else value


# --- rebuild, verify --------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def rebuild(
    file: File,
    view: Name,
    sample: Sample = 100.0,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Serve what was built without a comparison.")
    ] = False,
    json: Json = False,
) -> None:
    """Build a view anew beside the old one, compare it with a recomputation, and swap them.

    Readers see the old one, kept current, until then; it stays for a rollback. Runs no other job.

    Example: millstream views rebuild shop.py clicks_per_url --sample 10
    """
    with opened(file) as found:
        found.views.store(view)
        with shown_rebuild(as_json=json) as look:
            found.jobs.run(
                once=True,
                only=[view],
                rebuild=[view],
                verify=None if no_verify else sample,
                look=look,
            )
        served = _served(found.views.store(view))
    number = served.number if served else None
    if json:
        typer.echo(json_text.dumps({"view": view, "generation": number}))  # as all lines before it
    else:
        compared = "" if no_verify else f"A recomputation of {sample:g} % of the keys agrees. "
        say(f"{compared}Readers of view {view} see generation {number} now.")


@contextmanager
def shown_rebuild(*, as_json: bool) -> "Iterator[Callable[[list[JobProgress]], None]]":
    """A bar at a terminal; elsewhere what `millstream run` prints."""
    if as_json or not sys.stderr.isatty():
        yield JobLines(as_json=as_json).look
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        MofNCompleteColumn(),
        TextColumn("records"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def look(jobs: "list[JobProgress]") -> None:
            for job in jobs:
                left = job.left if job.lag_total is None else job.lag_total
                total = None if left is None else job.rows + left
                bar.update(task, total=total, completed=job.rows, left=left_text(job))

        yield look


@app.command(cls=PlainCommand)
def verify(file: File, view: Name, sample: Sample = 100.0, json: Json = False) -> None:
    """Compare what readers see with what the view's topics come to. Ends with 1 if it differs.

    Example: millstream views verify shop.py clicks_per_url --sample 10
    """
    with opened(file) as found:
        found.views.store(view)
        verdict = found.jobs.verdict(view, sample=sample)
    if json:
        print_json(_verdict(view, verdict))
    elif verdict.is_same:
        say(f"View {view} is what its topics come to: {counted(verdict.rows, 'row')} compared.")
    else:
        say(f"View {view} differs in {verdict.differing:,} of {counted(verdict.rows, 'row')}:")
        for one in verdict.examples:
            print(f"  {one}")
    if not verdict.is_same:
        raise typer.Exit(1)


def _verdict(view: str, verdict: "Verdict") -> dict[str, Any]:
    return {
        "view": view,
        "is_same": verdict.is_same,
        "rows": verdict.rows,
        "differing": verdict.differing,
        "sample": verdict.sample,
        "examples": [str(one) for one in verdict.examples],
    }


# --- rollback, drop ---------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def rollback(file: File, view: Name, yes: Yes = False) -> None:
    """Show readers the generation before a rebuild; its job goes on from where it was.

    Put the application's code back too: a job of another shape does not start.

    Example: millstream views rollback shop.py clicks_per_url
    """
    with opened(file) as found:
        confirm(f"Show readers of view {view} the generation before?", yes=yes)
        number = found.jobs.roll_back(view)
    say(f"Readers of view {view} see generation {number} now.")


@app.command(cls=PlainCommand)
def drop(
    file: File,
    view: Name,
    generation: Annotated[
        int | None,
        typer.Option("--generation", metavar="N", help="Only this one, which readers do not see."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove a view and its job's checkpoint: the next run of the job starts it over.

    Example: millstream views drop shop.py clicks_per_url --generation 1
    """
    what = f"view {view}" if generation is None else f"generation {generation} of view {view}"
    with opened(file) as found:
        place = found.views.store(view).place
        confirm(f"Remove {what} from {place}?", yes=yes)
        found.jobs.drop(view, generation)
    say(f"Removed {what}.")
