"""`millstream doctor`: what this machine lacks, and how to mend it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.options import Json
from millstream.commands.output import counted, print_json

if TYPE_CHECKING:
    from millstream.doctor.finding import Finding

COLORS = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW, "fail": typer.colors.RED}


def doctor(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIRECTORY",
            help="Look at this data directory too, and at the disk that it is on.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say what this machine lacks, and how to mend it.

    Python, Java, packages, disk, clock, limits, memory, ports; a broker if MILLSTREAM_BROKERS names
    one. Ends with 1 if something will not work; a doubt is no failure.

    Example: millstream doctor --data shop.millstream
    """
    from millstream.doctor.checkup import findings

    found = []
    for one in findings(data):
        found.append(one)
        if not json:
            _show(one)
    if json:
        print_json([one.to_json() for one in found])
    else:
        typer.echo(_summary(found))
    if any(one.verdict == "fail" for one in found):
        raise typer.Exit(1)


def _show(one: "Finding") -> None:
    verdict = typer.style(f"{one.verdict:<4}", fg=COLORS[one.verdict], bold=True)
    typer.echo(f"{verdict}  {one.check:<15} {one.told}")
    if one.mend:
        typer.echo(f"{'':<22}to fix it: {one.mend}")


def _summary(found: "Sequence[Finding]") -> str:
    counts = {name: sum(one.verdict == name for one in found) for name in COLORS}
    if counts["fail"]:
        return f"{counted(counts['fail'], 'fault')}, {counted(counts['warn'], 'doubt')}"
    return f"all well, {counted(counts['warn'], 'doubt')}" if counts["warn"] else "all well"
