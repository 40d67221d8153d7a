"""What makes a retry a no-op: receipts of batches that were written, and who may write. Pure.

Spark repeats its last batch after a crash. Every task writes its rows and a receipt in one Kafka
transaction; who finds the receipt of its batch has nothing to do. Each incarnation of a job claims
a higher epoch first; who finds a higher one than its own is a zombie, and stops.

    claim    {"epoch": 3}
    receipt  {"epoch": 3, "query": "5b1c...", "batch": 17, "rows": 1000,
              "positions": {"orders": {"0": 498}}}

`query` is Spark's name for a checkpoint: a job that starts over with a new one counts its batches
from 0 again, and receipts of the old one say nothing about them. `positions` are where the batch
has read to: a batch of the same number with other positions was planned again, and is no repeat.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from millstream.base.errors import Corrupt
from millstream.base.ports import Fenced as Fenced
from millstream.base.positions import Positions, positions_from, positions_text


class BadReceipt(Corrupt):
    def __init__(self, *, job: str, found: bytes | None) -> None:
        super().__init__(
            f"job {job}: {found!r} is not a receipt. Something else writes to its receipts topic"
        )
        self.job, self.found = job, found


class PlannedAgain(Corrupt):
    """A batch that was written already, but that now reads other records than it did then.

    Spark plans a batch again when files of its checkpoint are gone, or are older than the output.
    """

    def __init__(
        self, *, job: str, batch: int, positions: Positions | None, receipt: "Receipt"
    ) -> None:
        plans = "has no plan" if positions is None else f"plans up to {positions_text(positions)}"
        super().__init__(
            f"Job {job}: its checkpoint is at batch {batch}, which {plans}, but its output holds "
            f"batch {receipt.batch}, which has read up to "
            f"{positions_text(receipt.positions or {})}. The checkpoint has lost files, or is "
            "older than the output. Nothing was written. Put back a checkpoint that fits "
            "(`millstream state restore`), or let the job start over and write all its rows "
            "again: `millstream run APP_FILE --rebuild JOB`"
        )
        self.job, self.batch, self.positions, self.receipt = job, batch, positions, receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The highest epoch that a run of the job has claimed."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One task of one batch was written. `positions`: None in a receipt of an older version."""

    epoch: int
    query: str
    batch: int
    rows: int
    positions: Positions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A task that is about to write its part of a batch, which reads up to `positions`.

    None: batches of this writer are numbered by something that cannot plan them again.
    """

    job: str
    epoch: int
    query: str
    batch: int
    task: int
    positions: Positions | None = None

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.job, self.task)


def transactional_id(job: str, task: int) -> str:
    """One per task number: opening it ends what an earlier attempt left open."""
    return f"{job}/{task}"


def must_write(writer: Writer, *, claim: Claim | None, receipt: Receipt | None) -> bool:
    """Whether the task's rows are still to be written; raises `Fenced` for a zombie.

    Spark repeats the last batch only, over the same records: any other batch that has a receipt
    was planned again.
    """
    claimed = max(claim.epoch if claim else 0, receipt.epoch if receipt else 0)
    if claimed > writer.epoch:
        raise Fenced(job=writer.job, epoch=writer.epoch, claimed=claimed)
    if receipt is None or receipt.query != writer.query:
        return True
    if receipt.batch < writer.batch:
        return True
    require_repeat(writer.job, writer.batch, writer.positions, receipt)
    return False


def require_repeat(job: str, batch: int, positions: Positions | None, receipt: Receipt) -> None:
    """A batch that is not after the receipt's must be the very one that it is for."""
    is_known = positions is not None and receipt.positions is not None
    is_same = batch == receipt.batch and (not is_known or positions == receipt.positions)
    if not is_same:
        raise PlannedAgain(job=job, batch=batch, positions=positions, receipt=receipt)


def encode(fact: Claim | Receipt) -> bytes:
    return json.dumps(asdict(fact)).encode()


def decode_claim(job: str, value: bytes | None) -> Claim:
    facts = _facts(job, value)
    try:
        return Claim(epoch=int(facts["epoch"]))
    except (KeyError, TypeError, ValueError):
        raise BadReceipt(job=job, found=value) from None


def decode_receipt(job: str, value: bytes | None) -> Receipt:
    facts = _facts(job, value)
    positions = facts.get("positions")
    try:
        return Receipt(
            epoch=int(facts["epoch"]),
            query=str(facts["query"]),
            batch=int(facts["batch"]),
            rows=int(facts["rows"]),
            positions=None if positions is None else positions_from(positions),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadReceipt(job=job, found=value) from None


def _facts(job: str, value: bytes | None) -> dict[str, Any]:
    try:
        facts = json.loads(value or b"")
    except ValueError:
        raise BadReceipt(job=job, found=value) from None
    if not isinstance(facts, dict):
        raise BadReceipt(job=job, found=value)
    return facts
