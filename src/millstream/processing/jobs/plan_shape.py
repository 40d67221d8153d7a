"""The shape of a job's plan: what its checkpoint depends on, and whether a changed job fits. Pure.

A checkpoint holds positions by source and state by operator, in the order of the plan. Filters and
projections may come and go. A grouping, an aggregate or a join may not: Spark would fail in the
middle of a batch, or go on with state of another meaning. `plan_reader.py` reads shapes off Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["new", "unchanged", "goes on", "must be rebuilt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator with state. `state` is what it keeps: aggregates, or the condition of a join."""

    kind: str
    keys: tuple[str, ...] = ()
    state: tuple[str, ...] = ()

    def __str__(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        of = f" of {', '.join(self.state)}" if self.state else ""
        return f"{self.kind}{of}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShape:
    """`sources` are names of sources with what they read, `watermarks` delays by column."""

    sources: Mapping[str, str]
    operators: tuple[Operator, ...] = ()
    watermarks: Mapping[str, str] | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a job's start would do with its checkpoint, and why."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def can_start(self) -> bool:
        return self.verdict != "must be rebuilt"

    def __str__(self) -> str:
        return f"{self.verdict}: {'; '.join(self.reasons)}" if self.reasons else self.verdict


def compare(old: PlanShape, new: PlanShape, *, same_code: bool) -> Comparison:
    """Whether a job of shape `new` can go on from a checkpoint of shape `old`."""
    if broken := [*_source_breaks(old, new), *_operator_breaks(old, new), *_output_break(old, new)]:
        return Comparison(verdict="must be rebuilt", reasons=tuple(broken))
    if notes := list(_notes(old, new)):
        return Comparison(verdict="goes on", reasons=tuple(notes))
    if not same_code:
        reason = "the function was changed, and keeps the same state"
        return Comparison(verdict="goes on", reasons=(reason,))
    return Comparison(verdict="unchanged")


def _source_breaks(old: PlanShape, new: PlanShape) -> Iterator[str]:
    for name, reads in old.sources.items():
        if name in new.sources and new.sources[name] != reads:
            yield f"source {name} read {reads}, and now {new.sources[name]}"
    if not set(old.sources) & set(new.sources):
        yield f"it read {_listed(old.sources)}, and now {_listed(new.sources)}"


def _operator_breaks(old: PlanShape, new: PlanShape) -> Iterator[str]:
    if len(old.operators) != len(new.operators):
        yield f"its state was {_listed(old.operators)}, and now is {_listed(new.operators)}"
        return
    for before, after in zip(old.operators, new.operators, strict=True):
        if before != after:
            yield f"its state was {before}, and now is {after}"


def _output_break(old: PlanShape, new: PlanShape) -> Iterator[str]:
    if old.output != new.output:
        yield f"its rows went to {old.output}, and now to {new.output}"


def _notes(old: PlanShape, new: PlanShape) -> Iterator[str]:
    for name in sorted(set(new.sources) - set(old.sources)):
        yield f"source {name} is new, and read from its start"
    for name in sorted(set(old.sources) - set(new.sources)):
        yield f"source {name} is no longer read"
    before, after = old.watermarks or {}, new.watermarks or {}
    for column in sorted(set(before) & set(after)):
        if before[column] != after[column]:
            yield f"the watermark of {column} was {before[column]} behind, now {after[column]}"


def _listed(things: Sequence[object] | Mapping[str, str]) -> str:
    return " and ".join(map(str, things)) or "none"


def to_json(shape: PlanShape) -> dict[str, Any]:
    return {
        "sources": dict(shape.sources),
        "operators": [
            {"kind": one.kind, "keys": list(one.keys), "state": list(one.state)}
            for one in shape.operators
        ],
        "watermarks": dict(shape.watermarks or {}),
        "output": shape.output,
    }


def from_json(found: Mapping[str, Any]) -> PlanShape:
    return PlanShape(
        sources={str(name): str(reads) for name, reads in found["sources"].items()},
        operators=tuple(
            Operator(kind=one["kind"], keys=tuple(one["keys"]), state=tuple(one["state"]))
            for one in found["operators"]
        ),
        watermarks={str(name): str(delay) for name, delay in found["watermarks"].items()},
        output=str(found["output"]),
    )
