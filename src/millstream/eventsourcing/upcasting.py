"""Old data of an event as the newest version has it, step by step. Pure.

    @upcast(Withdrawn, from_version=1)
    def _(data):                                   # version 1 had whole euros
        return {"cents": data["amount"] * 100}

Each step lifts one version to the next, as a dict: the classes of old versions are not needed any
more. What is stored is never rewritten.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from millstream.base.declared import BadDeclaration
from millstream.eventsourcing.declared_event import EventFacts, Step, facts_of

StepT = TypeVar("StepT", bound=Step)


def upcast(kind: type, *, from_version: int) -> Callable[[StepT], StepT]:
    """Register a function that lifts data of this version to the next one."""
    facts = facts_of(kind)
    if facts is None:
        raise BadDeclaration(f"@upcast: {kind.__name__} is no event: mark it with @event first")
    if not 1 <= from_version < facts.version:
        raise BadDeclaration(
            f"@upcast: from_version={from_version}: {facts.name} has version {facts.version}, so "
            f"a step is from 1 to {facts.version - 1}. Give the event its new version first"
        )

    def register(step: StepT) -> StepT:
        if from_version in facts.steps:
            raise BadDeclaration(
                f"@upcast: there is a step of {facts.name} from version {from_version} already"
            )
        facts.steps[from_version] = step
        return step

    return register


def require_steps(kinds: Iterable[type]) -> None:
    """Every old version of these events can be lifted to the newest."""
    for kind in kinds:
        facts = facts_of(kind)
        if facts is not None and (missing := missing_steps(facts)):
            raise BadDeclaration(
                f"event {facts.name} has version {facts.version}, and no @upcast from version "
                f"{missing[0]}: write @upcast({kind.__name__}, from_version={missing[0]})"
            )


def missing_steps(facts: EventFacts) -> list[int]:
    return [version for version in range(1, facts.version) if version not in facts.steps]
