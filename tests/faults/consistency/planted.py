"""The broker with a bug planted into it, in its own process: never a switch in the package.

    python -m tests.faults.consistency.planted BUG JOURNAL -- broker --data ...

A bug replaces a function of the package. If that is gone or renamed, the launcher ends with an
error before the broker starts, so that no bug silently stops being one. Every broker under test
is launched here, most with no bug: on a disk whose syncs take a while, so that there is
something unsynced to lose.
"""

import dataclasses
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.__main__ import main
from millstream.base.disk import RealFile
from millstream.broker import server, transaction_coordinator
from millstream.broker.group_coordinator import GroupCoordinator
from millstream.broker.partition import ServedPartition
from millstream.broker.transaction_coordinator import OFFSETS_PLACE, TransactionCoordinator
from millstream.broker.transactions.transaction import Transaction, TransactionState
from millstream.log import state_log
from millstream.log.partition_log import PartitionLog
from millstream.log.producer_state import ProducerStates
from tests.faults.consistency.broker_under_test import NO_BUG
from tests.faults.consistency.replacing import replace, replace_number
from tests.faults.consistency.sync_journal import keep_journal

Function = Callable[..., Any]

# As on a disk that turns.
SYNC_SECONDS = 0.004
# Of a disk that is busy: what is acknowledged before the sync is long at risk.
SLOW_SYNC_SECONDS = 0.3


def slow_syncs(seconds: float) -> None:
    def slowed(sync: Function) -> Function:
        def sync_slowly(file: RealFile) -> None:
            if file.path.suffix == ".log":
                time.sleep(seconds)
            sync(file)

        return sync_slowly

    replace(RealFile, "sync", slowed)


def hurry() -> None:
    """What comes once in a while comes often enough for a short run to meet it."""
    replace_number(server, "CHECKPOINT_INTERVAL_MS", 300)
    replace_number(server, "TRANSACTION_CHECK_INTERVAL_MS", 100)
    replace_number(state_log, "REWRITE_BYTES_MIN", 16 << 10)


def always(value: object) -> Callable[[Function], Function]:
    """A function that does nothing and returns this."""
    return lambda _: lambda *arguments, **options: value


# --- the bugs ---------------------------------------------------------------------------------


def acknowledged_before_the_sync() -> None:
    slow_syncs(SLOW_SYNC_SECONDS)
    replace(ServedPartition, "is_durable", always(True))


def duplicates_not_detected() -> None:
    """Neither repeats nor gaps are noticed. Syncs are long: a kill finds more under way."""
    slow_syncs(0.03)
    replace(ProducerStates, "check", always(None))


def offset_given_twice() -> None:
    """Every twentieth batch is told the offset of the one before it."""
    turns = itertools.count(1)

    def repeating(append: Function) -> Function:
        def append_and_lie(log: PartitionLog, *arguments: Any, **options: Any) -> Any:
            appended = append(log, *arguments, **options)
            is_turn = next(turns) % 20 == 0 and appended.base_offset > 0
            return appended._replace(base_offset=appended.base_offset - is_turn)

        return append_and_lie

    replace(PartitionLog, "append", repeating)


def commit_marker_forgotten() -> None:
    """One partition never hears of a commit."""

    def forgetful(write_marker: Function) -> Function:
        async def write_most(coordinator: Any, marker: Any, who: Any, place: Any) -> None:
            if not (marker.is_commit and place == ("events", 0)):
                await write_marker(coordinator, marker, who, place)

        return write_most

    replace(TransactionCoordinator, "_write_marker", forgetful)


def abort_marker_says_commit() -> None:
    def lying(write_marker: Function) -> Function:
        async def write_commit(coordinator: Any, marker: Any, who: Any, place: Any) -> None:
            if place != OFFSETS_PLACE:
                marker = _as_commit(marker)
            await write_marker(coordinator, marker, who, place)

        return write_commit

    replace(TransactionCoordinator, "_write_marker", lying)


def aborted_offsets_applied() -> None:
    def applying(end_transaction: Function) -> Function:
        async def apply(groups: GroupCoordinator, marker: Any, who: Any) -> None:
            await end_transaction(groups, _as_commit(marker), who)

        return apply

    replace(GroupCoordinator, "end_transaction", applying)


def _as_commit(marker: Any) -> Any:
    if dataclasses.is_dataclass(marker):
        return dataclasses.replace(marker, is_commit=True)  # type: ignore[type-var]
    return marker._replace(is_commit=True)


def predecessor_left_open() -> None:
    """A new producer fences the one before it, but does not end its transaction."""

    def careless(renewed: Function) -> Function:
        async def renewed_only(coordinator: Any, slot: Any, *arguments: Any) -> Any:
            if slot.transaction is not None and slot.transaction.state is TransactionState.ONGOING:
                slot.transaction = dataclasses.replace(
                    slot.transaction, state=TransactionState.EMPTY, places=frozenset()
                )
            return await renewed(coordinator, slot, *arguments)

        return renewed_only

    replace(TransactionCoordinator, "_renewed", careless)


def fencing_not_checked() -> None:
    """Whoever comes with an old epoch is served as if it were the current one."""
    replace(Transaction, "check", always(None))
    replace(ProducerStates, "check_epoch", always(None))


def epoch_not_bumped() -> None:
    """A new producer ends its predecessor's transaction, but does not fence it: both have the same
    epoch. Gaps pass as well: else the two would collide in their sequence, and get errors.
    """
    replace(Transaction, "renew", _in_the_same_epoch)
    replace(Transaction, "fence", _in_the_same_epoch)
    replace(ProducerStates, "_expect", always(None))


def _in_the_same_epoch(step: Function) -> Function:
    def keep_epoch(transaction: Transaction, *arguments: Any, **options: Any) -> Transaction:
        stepped: Transaction = step(transaction, *arguments, **options)
        return dataclasses.replace(stepped, epoch=transaction.epoch)

    return keep_epoch


def last_stable_offset_ignored() -> None:
    def unstable(advance: Function) -> Function:
        def advance_all(log: PartitionLog, high_watermark: int) -> None:
            advance(log, high_watermark)
            log.last_stable_offset = log.high_watermark

        return advance_all

    replace(PartitionLog, "_advance", unstable)


def partitions_forgotten_at_restart() -> None:
    """The transactions that were open are there again, but not where they wrote."""

    def forgetful(read_transaction: Function) -> Function:
        def read_without_places(key: bytes, data: bytes) -> Any:
            return dataclasses.replace(read_transaction(key, data), places=frozenset())

        return read_without_places

    replace(transaction_coordinator, "read_transaction", forgetful)


BUGS: Mapping[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        acknowledged_before_the_sync,
        duplicates_not_detected,
        offset_given_twice,
        commit_marker_forgotten,
        abort_marker_says_commit,
        aborted_offsets_applied,
        predecessor_left_open,
        fencing_not_checked,
        epoch_not_bumped,
        last_stable_offset_ignored,
        partitions_forgotten_at_restart,
    )
}


def launch(arguments: list[str]) -> None:
    bug, journal, separator, *command = arguments
    if separator != "--":
        raise SystemExit("usage: planted BUG JOURNAL -- broker ...")
    hurry()
    slow_syncs(SYNC_SECONDS)
    if bug != NO_BUG:
        BUGS[bug]()
    keep_journal(Path(journal))
    sys.argv = ["millstream", *command]
    main()


if __name__ == "__main__":
    launch(sys.argv[1:])
