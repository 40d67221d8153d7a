"""One group as its coordinator keeps it: members, offsets, and what is on its way to the disk."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

from millstream.broker.deadline_timer import DeadlineTimer
from millstream.broker.groups.conversion import AnyGroup
from millstream.broker.groups.group_offsets import GroupOffsets, TopicPartition
from millstream.broker.groups.outcome import AnyFact, AnyFactKey, Outbox, Outcome


@dataclass(slots=True)
class CoordinatedGroup:
    """A group of any kind but share, how far it has read, and answers that wait for the disk."""

    members: AnyGroup
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    outbox: Outbox = field(default_factory=Outbox)
    timer: DeadlineTimer = field(default_factory=DeadlineTimer)
    # Offsets on their way to the disk: whoever deletes offsets must not miss them.
    committing: Counter[TopicPartition] = field(default_factory=Counter)
    last_store: "asyncio.Future[None] | None" = None  # of its state, until that is synced
    # What did not get into the log: it goes with the next outcome, whose replies wait for it.
    unstored: dict[AnyFactKey, AnyFact | None] = field(default_factory=dict)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition of which an offset is stored, or will be in a moment."""
        return sorted({where for where, _ in self.offsets} | self.committing.keys())

    @property
    def is_removable(self) -> bool:
        """Nothing would be lost: no member, no offset, no id that was given out."""
        return (
            self.members.is_vacant
            and not len(self.offsets)
            and not self.offsets.has_held
            and not self.committing
        )

    def with_unstored(self, outcome: Outcome) -> Outcome:
        if not self.unstored:
            return outcome
        facts, self.unstored = {**self.unstored, **dict(outcome.facts)}, {}
        return replace(outcome, facts=tuple(facts.items()))
