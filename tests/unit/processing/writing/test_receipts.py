"""Who may write, and what is written already."""

from dataclasses import replace

import pytest

from millstream.base.positions import Positions
from millstream.processing.writing.receipts import (
    BadReceipt,
    Claim,
    Fenced,
    PlannedAgain,
    Receipt,
    Writer,
    decode_claim,
    decode_receipt,
    encode,
    must_write,
)

POSITIONS = {"orders": {0: 498}}
WRITER = Writer(job="totals", epoch=2, query="q", batch=7, task=0, positions=POSITIONS)
RECEIPT = Receipt(epoch=2, query="q", batch=7, rows=10, positions=POSITIONS)


def test_the_first_batch_of_a_job_is_written() -> None:
    assert must_write(WRITER, claim=Claim(epoch=2), receipt=None)


def test_a_batch_after_the_last_receipt_is_written() -> None:
    assert must_write(WRITER, claim=Claim(epoch=2), receipt=replace(RECEIPT, batch=6))


@pytest.mark.parametrize("positions", [POSITIONS, None])
def test_a_batch_that_has_a_receipt_is_not_written_again(positions: Positions | None) -> None:
    kept = replace(RECEIPT, positions=positions)
    assert not must_write(WRITER, claim=Claim(epoch=2), receipt=kept)


@pytest.mark.parametrize(
    ("batch", "positions"),
    [(7, {"orders": {0: 499}}), (7, {}), (7, {"others": {0: 498}}), (8, POSITIONS), (8, None)],
)
def test_a_batch_that_was_planned_again_is_refused(batch: int, positions: Positions | None) -> None:
    kept = replace(RECEIPT, batch=batch, positions=positions)
    with pytest.raises(PlannedAgain, match=f"its output holds batch {batch}, which has read up"):
        must_write(WRITER, claim=Claim(epoch=2), receipt=kept)


def test_a_receipt_of_an_earlier_run_counts_for_the_batch_that_is_repeated() -> None:
    assert not must_write(WRITER, claim=Claim(epoch=2), receipt=replace(RECEIPT, epoch=1))


def test_receipts_of_another_checkpoint_say_nothing() -> None:
    assert must_write(
        WRITER, claim=Claim(epoch=2), receipt=replace(RECEIPT, query="before", batch=99)
    )


@pytest.mark.parametrize(
    ("claim", "receipt"),
    [(Claim(epoch=3), None), (Claim(epoch=3), RECEIPT), (None, replace(RECEIPT, epoch=3))],
)
def test_a_zombie_is_fenced_whatever_it_would_write(
    claim: Claim | None, receipt: Receipt | None
) -> None:
    with pytest.raises(Fenced, match="job totals: a newer run of it has started"):
        must_write(WRITER, claim=claim, receipt=receipt)


def test_receipts_and_claims_survive_their_bytes() -> None:
    assert decode_receipt("totals", encode(RECEIPT)) == RECEIPT
    older = b'{"epoch": 2, "query": "q", "batch": 7, "rows": 10}'
    assert decode_receipt("totals", older) == replace(RECEIPT, positions=None)
    assert decode_claim("totals", encode(Claim(epoch=4))) == Claim(epoch=4)


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"{}", b'{"epoch": "x"}', b"\xff"])
def test_bytes_that_are_no_receipt_are_refused(value: bytes | None) -> None:
    with pytest.raises(BadReceipt, match="is not a receipt"):
        decode_receipt("totals", value)
    with pytest.raises(BadReceipt, match="is not a receipt"):
        decode_claim("totals", value)


def test_each_task_has_a_transactional_id_of_its_own() -> None:
    assert WRITER.transactional_id != replace(WRITER, task=1).transactional_id
