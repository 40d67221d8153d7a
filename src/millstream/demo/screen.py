"""What the demo has on the screen, as text. Pure: facts in, lines out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.demo.figures import Comparison

NAME_WIDTH = 22

# What a topic is, for who sees it for the first time.
SAID: Mapping[str, str] = {
    "clicks": "clicks and searches, some late, one device with a wrong clock",
    "ads_shown": "ads that were shown",
    "ads_clicked": "clicks on them",
    "payments": "payments, some twice, some late, some no payments at all",
    "orders": "orders, captured from PostgreSQL with customers and prices",
}
MADE: Mapping[str, str] = {
    "revenue_a_minute": "windows, late ones corrected, duplicates counted once",
    "orders_with_customer": "as-of join: the customer as of then",
    "orders_with_price": "as-of join: the price as of then",
    "customer_360": "table joined with the totals of a table",
    "visits": "sessions that merge",
    "ads_that_worked": "two streams joined within a minute",
    "stock_on_hand": "the events of an aggregate, summed up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that is known at one moment. `states`: of the jobs, by name."""

    seconds: float
    url: str
    records: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    headlines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    done: Mapping[str, int] = field(default_factory=dict)


def screen_lines(scene: Scene) -> list[str]:
    return [
        f"{scene.seconds:,.0f} s   console: {scene.url}   Ctrl-C ends it",
        "",
        *_topics(scene),
        "",
        *_views(scene),
        "",
        *_troubles(scene),
    ]


def _topics(scene: Scene) -> list[str]:
    lines = [f"{'COMING IN':<{NAME_WIDTH}} {'RECORDS':>9} {'/S':>6}"]
    for name, said in SAID.items():
        count, rate = scene.records.get(name, 0), scene.rates.get(name, 0.0)
        lines.append(f"{name:<{NAME_WIDTH}} {count:>9,} {rate:>6.1f}  {said}")
    return lines


def _views(scene: Scene) -> list[str]:
    lines = ["VIEWS, KEPT ON SPARK"]
    for name, made in MADE.items():
        row = scene.headlines.get(name)
        said = headline(row) if row else _state(scene.jobs.get(name))
        lines.append(f"{name:<{NAME_WIDTH}} {said:<40} {made}")
    return lines


def _state(job: Mapping[str, Any] | None) -> str:
    return "Spark starts" if job is None else f"job is {job['state']}"


def headline(row: Mapping[str, Any]) -> str:
    """`{"revenue": 12.5, "payments": 3}` as "12.50 revenue, 3 payments"."""
    return ", ".join(f"{_number(value)} {name.replace('_', ' ')}" for name, value in row.items())


def _number(value: Any) -> str:
    if value is None:
        return "0"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _troubles(scene: Scene) -> list[str]:
    """What went wrong on purpose: how often, and what became of it."""
    done, records = scene.done, scene.records
    counts = {
        "late events: what they touch was corrected": _late(scene),
        "payments sent twice: counted once": done.get("sent twice", 0),
        "clicks of a wrong clock: dead letters": records.get("clicks.dead", 0),
        "records that are no payments: dead letters": records.get("payments.dead", 0),
        "jobs of the queue `restock` delivered again": done.get("redelivered", 0),
        "products restocked": done.get("restocked", 0),
    }
    lines = [f"{count:>7,}  {said}" for said, count in counts.items()]
    return ["WHAT GOES WRONG, AND WHAT BECOMES OF IT", *lines]


def _late(scene: Scene) -> int:
    return sum(int(job.get("late") or 0) for job in scene.jobs.values())


def plain_line(scene: Scene) -> str:
    """For who reads a file, not a screen."""
    total = sum(scene.records.get(name, 0) for name in SAID)
    rate = sum(scene.rates.get(name, 0.0) for name in SAID)
    views = "; ".join(f"{name}: {headline(row)}" for name, row in scene.headlines.items())
    return f"{scene.seconds:6.0f} s  {total:,} records, {rate:.0f}/s  {views or 'no view yet'}"


def comparison_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """The panel of chaos: what the database has, and what each view has."""
    lines = [f"{'VIEW':<{NAME_WIDTH}} {'IN THE DATABASE':>24} {'IN THE VIEW':>24}"]
    for one in comparisons:
        found = "nothing yet" if one.found is None else str(one.found)
        lines.append(f"{one.view:<{NAME_WIDTH}} {one.database!s:>24} {found:>24}  {_mark(one)}")
    return lines


def _mark(one: Comparison) -> str:
    """Behind is how a view is while the shop is busy; more, or another sum, would be wrong."""
    if one.is_equal:
        return "equal"
    is_behind = one.found is None or one.found.number < one.database.number
    return "behind" if is_behind else "differs"
