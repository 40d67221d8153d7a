"""What makes a retry a no-op: receipts of batches that were written, and who may write. Pure.

Spark repeats its last batch after a crash. Every task writes its rows and a receipt in one Kafka
transaction; who finds the receipt of its batch has nothing to do. Each incarnation of a job claims
a higher epoch first; who finds a higher one than its own is a zombie, and stops.

    claim    {"epoch": 3}
    receipt  {"epoch": 3, "query": "5b1c...", "batch": 17, "rows": 1000}

`query` is Spark's name for a checkpoint: a job that starts over with a new one counts its batches
from 0 again, and receipts of the old one say nothing about them.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from millstream.base.errors import Corrupt
from millstream.base.ports import Fenced as Fenced


class BadReceipt(Corrupt):
    def __init__(self, *, job: str, found: bytes | None) -> None:
        super().__init__(
            f"job {job}: {found!r} is not a receipt. Something else writes to its receipts topic"
        )
        self.job, self.found = job, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The highest epoch that a run of the job has claimed."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One task of one batch was written."""

    epoch: int
    query: str
    batch: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A task that is about to write its part of a batch."""

    job: str
    epoch: int
    query: str
    batch: int
    task: int

    @property
    def transactional_id(self) -> str:
        """One per task number: who opens it ends what an earlier attempt left open."""
        return f"{self.job}/{self.task}"


def must_write(writer: Writer, *, claim: Claim | None, receipt: Receipt | None) -> bool:
    """Whether the task's rows are still to be written; raises `Fenced` for a zombie."""
    claimed = max(claim.epoch if claim else 0, receipt.epoch if receipt else 0)
    if claimed > writer.epoch:
        raise Fenced(job=writer.job, epoch=writer.epoch, claimed=claimed)
    if receipt is None or receipt.query != writer.query:
        return True
    return receipt.batch < writer.batch


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
    try:
        return Receipt(
            epoch=int(facts["epoch"]),
            query=str(facts["query"]),
            batch=int(facts["batch"]),
            rows=int(facts["rows"]),
        )
    except (KeyError, TypeError, ValueError):
        raise BadReceipt(job=job, found=value) from None


def _facts(job: str, value: bytes | None) -> dict[str, Any]:
    try:
        facts = json.loads(value or b"")
    except ValueError:
        raise BadReceipt(job=job, found=value) from None
    if not isinstance(facts, dict):
        raise BadReceipt(job=job, found=value)
    return facts
