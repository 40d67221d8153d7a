"""Reads the step tables of joins: what comes, step by step, and what a join gives then."""

from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).parent / "joins"


@dataclass(frozen=True)
class JoinStep:
    """One side or the other; answers by the name of the join, such as {"left": ["Aa", "B-"]}."""

    time: int
    left: str | None
    right: str | None
    answers: dict[str, list[str]]


def join_steps(table: str) -> list[JoinStep]:
    lines = (TABLES / f"{table}.txt").read_text(encoding="utf-8").splitlines()
    head, *rows = [cells_of(line) for line in lines if not line.startswith("#")]
    return [step_of(row, joins=head[3:]) for row in rows]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def step_of(row: list[str], *, joins: list[str]) -> JoinStep:
    time, left, right, *given = row
    answers = {join: sorted(cell.split()) for join, cell in zip(joins, given, strict=True)}
    return JoinStep(int(time), left or None, right or None, answers)
