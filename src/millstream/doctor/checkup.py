"""All checks, in the order in which they are shown."""

from collections.abc import Iterator
from pathlib import Path

from millstream.doctor.finding import Finding
from millstream.doctor.machine import machine_findings
from millstream.doctor.places import place_findings
from millstream.doctor.software import software_findings


def findings(data: Path | None) -> Iterator[Finding]:
    yield from software_findings()
    yield from machine_findings(data or Path.cwd())
    yield from place_findings(data)
