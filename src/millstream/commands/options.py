"""Options that several commands share, declared once."""

from typing import Annotated

import typer

from millstream.base.errors import Rejected
from millstream.base.quantity import parse_duration_ms, parse_size

Brokers = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        metavar="HOST:PORT",
        help="The brokers to ask. Otherwise MILLSTREAM_BROKERS, or 127.0.0.1:9092.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Config = Annotated[
    list[str],
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="A topic config, such as retention.ms=30d or segment.bytes=64MiB. Repeatable.",
    ),
]
OnlyJobs = Annotated[
    list[str] | None, typer.Option("--only", metavar="NAME", help="Run this job. Repeatable.")
]
RebuildJobs = Annotated[
    list[str] | None,
    typer.Option(
        "--rebuild",
        metavar="JOB",
        help="Start this job over from the start of its topics. Readers of its view see the "
        "former one, kept current, until the new one has caught up. Repeatable.",
    ),
]
MetricsListen = Annotated[
    str | None,
    typer.Option(
        "--metrics-listen",
        metavar="HOST:PORT",
        help="Serve the jobs' progress for Prometheus, on loopback.",
    ),
]

WORDS_FOR_MINUS_ONE = ("forever", "unlimited")


class BadUsage(Rejected):
    """Options or arguments that do not go together."""


class BadOption(BadUsage):
    def __init__(self, *, option: str, value: str, allowed: str) -> None:
        super().__init__(f"{option}: cannot read {value!r}. Give {allowed}")
        self.option, self.value = option, value


def parse_pair(text: str, *, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadOption(option=option, value=text, allowed="NAME=VALUE")
    return name, value


def parse_topic_configs(pairs: list[str]) -> dict[str, str]:
    """As Kafka wants them: `retention.ms=7d` becomes 604800000."""
    configs = dict(parse_pair(pair, option="--config") for pair in pairs)
    return {name: _plain(name, value) for name, value in configs.items()}


def _plain(name: str, value: str) -> str:
    parse = parse_duration_ms if name.endswith(".ms") else parse_size
    if not name.endswith((".ms", ".bytes")) or value.startswith("-"):
        return value
    if value in WORDS_FOR_MINUS_ONE:
        return "-1"
    try:
        return str(parse(value))
    except ValueError:
        example = "a duration such as 7d" if name.endswith(".ms") else "a size such as 64MiB"
        raise BadOption(option="--config", value=f"{name}={value}", allowed=example) from None
