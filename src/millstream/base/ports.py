"""Where packages meet that do not know one another: what one asks, and another gives.

Jobs (processing/) write views (views/) through `ViewWriter`; app.py hands the one to the other.
Values and protocols only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from millstream.base.errors import Rejected
from millstream.base.positions import Positions as Positions
from millstream.base.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class Fenced(Rejected):
    def __init__(self, *, job: str, epoch: int, claimed: int) -> None:
        super().__init__(
            f"job {job}: a newer run of it has started (epoch {claimed}, this one has {epoch}). "
            "This one stops; nothing of it was written since"
        )
        self.job, self.epoch, self.claimed = job, epoch, claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReceipt:
    """One batch of a job, to be kept with what the batch changed: whose repeat is a no-op.

    `query` is Spark's name for a checkpoint: one that starts over counts its batches from 0 again.
    The batch reads from `start` to `positions`: a batch of the same number over another range is
    not a repeat. `start` is None where it is not known. `before` is the batch before it, if that is
    not the number before: a number can be taken by something else than a batch.
    """

    job: str
    epoch: int
    query: str
    batch: int
    positions: Positions = field(default_factory=dict)
    start: Positions | None = None
    before: int | None = None

    @property
    def follows(self) -> int:
        return self.batch - 1 if self.before is None else self.before


class ViewWriter(Protocol):
    """A view as its job writes it. Rows and receipt are durable together, or not at all."""

    def claim(self, job: str, columns: Schema) -> int:
        """Make the view fit these columns; a new epoch for the job, which fences earlier runs."""

    def write(self, receipt: BatchReceipt, changes: "pa.Table") -> bool:
        """Apply the changes of a batch; False if they were applied before.

        Rows with a column `_change` say what they do (base/changes.py); without it all are
        upserts. `_order` says which change of a key is the last, if the order of rows does not.
        """

    def serve(self, *, epoch: int | None = None) -> None:
        """Show what was written to readers, in place of an older generation of the view.

        `epoch`: of the run's last claim, if that was for another generation than this one.
        """

    def close(self) -> None: ...


class Staging(Protocol):
    """One batch on its way into a view, part by part, from several processes. Can be pickled."""

    def stage(self, part: int, batches: "Iterator[pa.RecordBatch]") -> Any:
        """Bring the changes of a part beside the view, where no reader sees them; facts about it
        for `commit`, which can be pickled. All changes of one key are in one part. A part may be
        staged again: the facts that are handed on decide which one counts."""


class StagingWriter(ViewWriter, Protocol):
    """A writer that also takes large batches in parts, which do not pass through one process."""

    def staging(self, receipt: BatchReceipt) -> Staging: ...

    def commit(self, receipt: BatchReceipt, facts: Sequence[Any]) -> bool:
        """Apply the parts that were staged, all at once; False if they were applied before."""
