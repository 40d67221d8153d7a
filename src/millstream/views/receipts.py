"""Whether a batch is to be written into a view: the same answer in every store. Pure.

A store keeps, with its rows, who writes them (`OwnedByAnother`), the highest epoch that a run has
claimed (`require_newest`) and the last batch that was written, with the positions up to which that
batch has read (`is_due`).
"""

from dataclasses import dataclass, field
from pathlib import Path

from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.base.ports import BatchReceipt, Fenced
from millstream.base.positions import Positions, positions_text

# Where a view is kept, for messages: a file, or a name such as "postgresql://db/shop, table v".
Place = str | Path


@dataclass(frozen=True, slots=True)
class KeptReceipt:
    """The last batch that was written, and the positions up to which it has read.

    `query` is the checkpoint that it was of.
    """

    query: str
    batch: int
    positions: Positions = field(default_factory=dict)


class OwnedByAnother(Rejected):
    def __init__(self, *, place: Place, owner: str, job: str) -> None:
        super().__init__(
            f"{place} is written by job {owner}, not by {job}: one view has one job. Give the view "
            "another name, or drop what is there if that job is gone"
        )
        self.place, self.owner, self.job = place, owner, job


class RowsLost(Corrupt):
    """A view without earlier batches of a checkpoint, from which its job goes on.

    `kept` is the last batch of it that the view has; None if there is none.
    """

    def __init__(self, *, view: str, place: Place, batch: int, kept: int | None = None) -> None:
        holds = "holds nothing of those before" if kept is None else f"ends with batch {kept}"
        super().__init__(
            f"view {view}: its job goes on with batch {batch}, but {place} {holds}. Put back a "
            "copy (`millstream state restore`), or rebuild the view"
        )
        self.view, self.place, self.batch, self.kept = view, place, batch, kept


class PlannedAgain(Corrupt):
    """A batch that the view has already, but that now reads other records than it did then.

    Spark plans a batch again when files of its checkpoint are gone, or are older than the view.
    """

    def __init__(
        self, *, view: str, place: Place, batch: int, positions: Positions, kept: KeptReceipt
    ) -> None:
        super().__init__(
            f"View {view}: its job plans batch {batch} up to {positions_text(positions)}, but "
            f"{place} holds batch {kept.batch}, which has read up to "
            f"{positions_text(kept.positions)}. The job's checkpoint has lost files, or is older "
            f"than the view. Nothing was written. Put back a checkpoint that fits (`millstream "
            f"state restore`), or rebuild the view: `millstream run APP_FILE --rebuild {view}`"
        )
        self.view, self.place, self.batch = view, place, batch
        self.positions, self.kept = positions, kept


class ClaimLost(Retryable):
    """A view whose store has lost everything, before its job has written a batch."""

    def __init__(self, *, place: Place) -> None:
        super().__init__(f"{place}: the claim on it is gone, with all the rest. Run the job again")
        self.place = place


def require_newest(job: str, epoch: int, *, claimed: int) -> None:
    if claimed > epoch:
        raise Fenced(job=job, epoch=epoch, claimed=claimed)


def is_due(receipt: BatchReceipt, kept: KeptReceipt | None, *, view: str, place: Place) -> bool:
    """False if this very batch was written before; raises if one before it is missing.

    Spark hands on every batch of a checkpoint in their order, also those without rows; which one
    comes before this one, the receipt says. Batch 0 of another checkpoint starts the view over:
    what is there goes, in one step with it. Spark repeats the last batch only, over the same
    records: any other batch that the view has already was planned again (`PlannedAgain`).
    """
    if kept is None or kept.query != receipt.query:
        if receipt.follows > -1:
            raise RowsLost(view=view, place=place, batch=receipt.batch, kept=None)
        return True
    if receipt.follows > kept.batch:
        raise RowsLost(view=view, place=place, batch=receipt.batch, kept=kept.batch)
    is_repeat = receipt.batch == kept.batch and receipt.positions == kept.positions
    is_next = receipt.follows == kept.batch and receipt.start in (None, kept.positions)
    if not (is_repeat or is_next):
        raise PlannedAgain(
            view=view, place=place, batch=receipt.batch, positions=receipt.positions, kept=kept
        )
    return is_next
