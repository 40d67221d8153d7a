"""Whether a batch is to be written into a view: the same answer in every store. Pure.

A store keeps, with its rows, who writes them (`OwnedByAnother`), the highest epoch that a run has
claimed (`require_newest`) and the last batch that was written (`is_due`).
"""

from dataclasses import dataclass
from pathlib import Path

from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.base.ports import BatchReceipt, Fenced

# Where a view is kept, for messages: a file, or a name such as "postgresql://db/shop, table v".
Place = str | Path


@dataclass(frozen=True, slots=True)
class KeptReceipt:
    """The last batch that was written; `query` is the checkpoint that it was of."""

    query: str
    batch: int


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


class ClaimLost(Retryable):
    """A view whose store has lost everything, before its job has written a batch."""

    def __init__(self, *, place: Place) -> None:
        super().__init__(f"{place}: the claim on it is gone, with all the rest. Run the job again")
        self.place = place


def require_newest(job: str, epoch: int, *, claimed: int) -> None:
    if claimed > epoch:
        raise Fenced(job=job, epoch=epoch, claimed=claimed)


def is_due(receipt: BatchReceipt, kept: KeptReceipt | None, *, view: str, place: Place) -> bool:
    """False if the batch was written before; raises if one before it is missing.

    Spark hands on every batch of a checkpoint in their order, also those without rows; which one
    comes before this one, the receipt says. Batch 0 of another checkpoint starts the view over:
    what is there goes, in one step with it.
    """
    last = kept.batch if kept is not None and kept.query == receipt.query else None
    if receipt.follows > (-1 if last is None else last):
        raise RowsLost(view=view, place=place, batch=receipt.batch, kept=last)
    return last is None or last < receipt.batch
