"""The checker on histories made by hand: for each anomaly one that has it, and a near miss."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.faults.consistency.anomaly import Anomaly
from tests.faults.consistency.checker import check
from tests.faults.consistency.history import (
    Ending,
    History,
    Isolation,
    Kind,
    Operation,
    Outcome,
    Read,
    Send,
)
from tests.faults.consistency.history_file import HistoryFile, read_history_file

X, Y = "events/0", "events/1"
COMMITTED, UNCOMMITTED = Isolation.COMMITTED, Isolation.UNCOMMITTED
numbers = count(1)


def operation(process: str, kind: Kind, at: int = 0, **facts: Any) -> Operation:
    facts.setdefault("outcome", Outcome.OK)
    return Operation(
        process=process,
        number=next(numbers),
        kind=kind,
        invoked_ns=at,
        completed_ns=at + 1,
        **facts,
    )


def send(*sends: Send, process: str = "producer") -> Operation:
    return operation(process, Kind.SEND, sends=sends)


def poll(
    *reads: Read, process: str = "reader", isolation: Isolation = COMMITTED, at: int = 1000
) -> Operation:
    return operation(process, Kind.POLL, at, polls=reads, isolation=isolation)


def final(*reads: Read, isolation: Isolation = COMMITTED, **facts: Any) -> Operation:
    """Everything that is there at the end."""
    return operation(
        f"final {isolation}", Kind.POLL, 9000, polls=reads, isolation=isolation, is_final=True,
        **facts,
    )  # fmt: skip


def final_both(*reads: Read) -> History:
    return [final(*reads), final(*reads, isolation=UNCOMMITTED)]


def transaction(
    *sends: Send,
    process: str = "writer",
    reads: tuple[Read, ...] = (),
    ending: Ending | None = Ending.COMMIT,
    ending_ns: int = 100,
    outcome: Outcome = Outcome.OK,
    **facts: Any,
) -> Operation:
    return operation(
        process, Kind.TRANSACTION, sends=sends, polls=reads, ending=ending,
        ending_ns=ending_ns if ending else None, outcome=outcome, isolation=COMMITTED, **facts,
    )  # fmt: skip


def aborted(*sends: Send, ending_ns: int = 100) -> Operation:
    return transaction(*sends, ending=Ending.ABORT, ending_ns=ending_ns, outcome=Outcome.FAIL)


def assign(process: str = "reader", **positions: int) -> Operation:
    return operation(process, Kind.ASSIGN, positions={X: positions["x"]})


def anomalies(*history: Operation) -> set[Anomaly]:
    return {finding.anomaly for finding in check(list(history)).anomalies}


def found(*history: Operation) -> set[Anomaly]:
    """With what is allowed."""
    return set(check(list(history)).counts)


A0, B1, C2 = Read(X, 0, "a"), Read(X, 1, "b"), Read(X, 2, "c")
SENT_A, SENT_B, SENT_C = Send(X, "a", 0), Send(X, "b", 1), Send(X, "c", 2)


def test_what_is_right_has_no_anomaly() -> None:
    history = [
        send(SENT_A),
        transaction(SENT_B),
        assign(x=0),
        poll(A0),
        poll(B1),
        *final_both(A0, B1),
    ]
    assert found(*history) == set()


# --- single records ---------------------------------------------------------------------------


def test_an_acknowledged_record_that_cannot_be_read_is_lost() -> None:
    assert anomalies(send(SENT_A, SENT_B), *final_both(A0)) == {Anomaly.LOST_WRITE}


def test_an_unacknowledged_record_may_be_missing() -> None:
    assert anomalies(send(SENT_A, Send(X, "b", None)), *final_both(A0)) == set()


def test_a_committed_transaction_that_cannot_be_read_is_lost() -> None:
    assert anomalies(transaction(SENT_A), *final_both()) == {Anomaly.LOST_WRITE}


def test_a_transaction_with_an_unknown_end_may_be_missing() -> None:
    assert anomalies(transaction(SENT_A, outcome=Outcome.INFO), *final_both()) == set()


def test_a_transaction_with_an_unknown_end_must_not_be_torn() -> None:
    torn = transaction(SENT_A, SENT_B, outcome=Outcome.INFO)
    assert anomalies(torn, *final_both(A0)) == {Anomaly.LOST_WRITE}


def test_a_record_that_was_read_once_must_stay() -> None:
    unacknowledged = send(SENT_A, Send(X, "b", None))
    seen = poll(A0, B1, isolation=UNCOMMITTED)
    assert anomalies(unacknowledged, seen, *final_both(A0)) == {Anomaly.LOST_WRITE}
    assert anomalies(unacknowledged, seen, *final_both(A0, B1)) == set()


def test_an_aborted_record_stays_for_those_who_read_uncommitted() -> None:
    seen = poll(A0, isolation=UNCOMMITTED)
    assert anomalies(aborted(SENT_A), seen, final(A0, isolation=UNCOMMITTED), final()) == set()


def test_one_value_at_two_offsets_is_a_duplicate() -> None:
    assert anomalies(send(SENT_A), *final_both(A0, Read(X, 1, "a"))) == {Anomaly.DUPLICATE}


def test_one_value_read_twice_at_one_offset_is_none() -> None:
    first, second = (poll(A0, process=name) for name in ("one", "two"))
    assert anomalies(send(SENT_A), first, second, *final_both(A0)) == set()


def test_a_value_that_nobody_sent_is_found() -> None:
    assert anomalies(send(SENT_A), *final_both(A0, B1)) == {Anomaly.UNSENT_VALUE}


def test_one_offset_with_two_values_is_inconsistent() -> None:
    sent = send(Send(X, "a", None), Send(X, "b", None))
    early = poll(Read(X, 0, "b"), isolation=UNCOMMITTED)
    assert Anomaly.INCONSISTENT_OFFSET in anomalies(sent, early, *final_both(A0, B1))


def test_two_records_acknowledged_at_one_offset_are_inconsistent() -> None:
    history = [send(SENT_A), send(Send(X, "b", 0), process="other"), *final_both(A0, B1)]
    assert anomalies(*history) == {Anomaly.INCONSISTENT_OFFSET}


def test_a_record_read_elsewhere_than_acknowledged_is_inconsistent() -> None:
    assert anomalies(send(Send(X, "a", 7)), *final_both(A0)) == {Anomaly.INCONSISTENT_OFFSET}


def test_one_offset_in_two_partitions_is_consistent() -> None:
    history = [send(SENT_A, Send(Y, "b", 0)), *final_both(A0, Read(Y, 0, "b"))]
    assert anomalies(*history) == set()


# --- transactions -----------------------------------------------------------------------------


def test_a_committed_read_of_an_aborted_record_is_found() -> None:
    history = [aborted(SENT_A), poll(A0), *final_both(A0)]
    assert anomalies(*history) == {Anomaly.ABORTED_READ}


def test_a_transaction_that_never_asked_to_commit_counts_as_aborted() -> None:
    killed = transaction(SENT_A, ending=None, outcome=Outcome.INFO)
    assert anomalies(killed, *final_both(A0)) == {Anomaly.ABORTED_READ}


def test_an_uncommitted_read_of_an_aborted_record_is_fine() -> None:
    history = [aborted(SENT_A), final(A0, isolation=UNCOMMITTED), final()]
    assert anomalies(*history) == set()


def test_a_record_read_before_its_commit_was_asked_for_is_found() -> None:
    history = [transaction(SENT_A, ending_ns=500), poll(A0, at=400), *final_both(A0)]
    assert anomalies(*history) == {Anomaly.PRECOMMITTED_READ}


def test_a_record_read_while_its_commit_was_under_way_is_fine() -> None:
    history = [transaction(SENT_A, ending_ns=500), poll(A0, at=499), *final_both(A0)]
    assert anomalies(*history) == set()


def test_records_behind_a_transaction_that_never_ends_are_found() -> None:
    open_at_1 = [final(A0, positions={X: 1}), final(A0, isolation=UNCOMMITTED, positions={X: 2})]
    assert anomalies(send(SENT_A), *open_at_1) == {Anomaly.HANGING_TRANSACTION}


def test_a_group_that_cannot_know_where_it_is_has_an_open_transaction() -> None:
    for outcome, expected in ((Outcome.INFO, {Anomaly.HANGING_TRANSACTION}), (Outcome.OK, set())):
        asked = operation("final", Kind.GROUP_POSITIONS, group="processors", outcome=outcome)
        assert anomalies(asked, *final_both()) == expected


def test_a_log_that_can_be_read_to_its_end_has_no_open_transaction() -> None:
    ended = [final(A0, positions={X: 2}), final(A0, isolation=UNCOMMITTED, positions={X: 2})]
    assert anomalies(send(SENT_A), *ended) == set()


# --- order ------------------------------------------------------------------------------------


def test_a_poll_that_leaves_a_record_out_is_found() -> None:
    sent = send(SENT_A, SENT_B, SENT_C)
    history = [sent, assign(x=0), poll(A0), poll(C2), *final_both(A0, B1, C2)]
    assert anomalies(*history) == {Anomaly.POLL_SKIP}
    assert anomalies(sent, assign(x=0), poll(B1), *final_both(A0, B1, C2)) == {Anomaly.POLL_SKIP}


def test_a_poll_may_leave_out_what_was_aborted() -> None:
    history = [
        send(SENT_A, SENT_C),
        aborted(SENT_B),
        assign(x=0),
        poll(A0),
        poll(C2),
        final(A0, C2),
        final(A0, B1, C2, isolation=UNCOMMITTED),
    ]
    assert anomalies(*history) == set()


def test_a_poll_that_goes_back_is_found() -> None:
    sent = send(SENT_A, SENT_B)
    history = [sent, assign(x=0), poll(A0, B1), poll(A0), *final_both(A0, B1)]
    assert anomalies(*history) == {Anomaly.NONMONOTONIC_POLL}


def test_a_consumer_may_be_told_to_go_back() -> None:
    sent = send(SENT_A, SENT_B)
    history = [sent, assign(x=0), poll(A0, B1), assign(x=0), poll(A0), *final_both(A0, B1)]
    assert anomalies(*history) == set()


def test_a_rebalance_may_move_a_consumer_and_is_counted() -> None:
    sent, everything = send(SENT_A, SENT_B, SENT_C), final_both(A0, B1, C2)
    before = [sent, assign(x=0), poll(A0), operation("reader", Kind.SUBSCRIBE)]
    forward, back = [*before, poll(C2), *everything], [*before, poll(A0), *everything]
    assert found(*forward) == {Anomaly.POLL_SKIP_IN_REBALANCE}
    assert found(*back) == {Anomaly.NONMONOTONIC_POLL_IN_REBALANCE}
    assert anomalies(*forward) == anomalies(*back) == set()


def test_only_the_first_poll_after_a_rebalance_may_be_anywhere() -> None:
    rebalance = operation("reader", Kind.SUBSCRIBE)
    history = [send(SENT_A, SENT_B, SENT_C), rebalance, poll(A0), poll(C2)]
    assert anomalies(*history, *final_both(A0, B1, C2)) == {Anomaly.POLL_SKIP}


def test_a_send_that_lands_before_an_earlier_one_is_found() -> None:
    sent = send(Send(X, "b", 1)), send(Send(X, "a", 0))
    assert anomalies(*sent, *final_both(A0, B1)) == {Anomaly.NONMONOTONIC_SEND}


def test_sends_of_two_processes_have_no_order() -> None:
    sent = send(Send(X, "b", 1)), send(Send(X, "a", 0), process="other")
    assert anomalies(*sent, *final_both(A0, B1)) == set()


def test_records_of_others_within_a_transaction_are_allowed() -> None:
    history = [transaction(SENT_A, SENT_C), send(SENT_B), *final_both(A0, B1, C2)]
    assert found(*history) == {Anomaly.SEND_SKIP_IN_TRANSACTION}
    assert anomalies(*history) == set()


# --- cycles -----------------------------------------------------------------------------------


def test_transactions_that_read_one_another_are_a_cycle() -> None:
    one = transaction(SENT_A, reads=(Read(Y, 0, "y"),), process="one")
    two = transaction(Send(Y, "y", 0), reads=(A0,), process="two")
    assert anomalies(one, two, *final_both(A0, Read(Y, 0, "y"))) == {Anomaly.G1C}


def test_a_chain_of_reads_is_no_cycle() -> None:
    one = transaction(SENT_A, process="one")
    two = transaction(Send(Y, "y", 0), reads=(A0,), process="two")
    three = transaction(SENT_B, reads=(Read(Y, 0, "y"), A0), process="three")
    assert anomalies(one, two, three, *final_both(A0, B1, Read(Y, 0, "y"))) == set()


def test_a_cycle_of_three_is_explained_with_its_transactions() -> None:
    z0, y0 = Read("events/2", 0, "z"), Read(Y, 0, "y")
    one = transaction(SENT_A, reads=(z0,), process="one")
    two = transaction(Send(Y, "y", 0), reads=(A0,), process="two")
    three = transaction(Send("events/2", "z", 0), reads=(y0,), process="three")
    (finding,) = check([one, two, three, *final_both(A0, y0, z0)]).anomalies
    assert finding.anomaly is Anomaly.G1C
    assert finding.operations == [one, two, three]


def test_writes_that_cross_are_allowed() -> None:
    one = transaction(SENT_A, Send(Y, "y1", 1), process="one")
    two = transaction(SENT_B, Send(Y, "y0", 0), process="two")
    history = [one, two, *final_both(A0, B1, Read(Y, 0, "y0"), Read(Y, 1, "y1"))]
    assert found(*history) == {Anomaly.G0}
    assert anomalies(*history) == set()


def test_a_read_against_the_order_of_writes_is_allowed() -> None:
    one = transaction(SENT_A, reads=(Read(Y, 0, "y"),), process="one")
    two = transaction(SENT_B, Send(Y, "y", 0), process="two")
    history = [one, two, *final_both(A0, B1, Read(Y, 0, "y"))]
    assert found(*history) == {Anomaly.G1C_BY_WRITE_ORDER}
    assert anomalies(*history) == set()


# --- read, process, write ---------------------------------------------------------------------


def processing(*reads: Read, name: str, **facts: Any) -> Operation:
    """A transaction that copies what it read, and sends how far it came."""
    copies = [Send("copies/0", f"copy of {read.value} by {name}", None) for read in reads]
    positions = {X: reads[-1].offset + 1}
    return transaction(
        *copies, process=name, reads=reads, group="processors", positions=positions, **facts
    )


def copies_of(*transactions: Operation) -> list[Read]:
    sends = [one for transaction in transactions for one in transaction.sends]
    return [Read("copies/0", offset, one.value) for offset, one in enumerate(sends)]


def group_at(offset: int) -> Operation:
    return operation("final", Kind.GROUP_POSITIONS, group="processors", positions={X: offset})


def test_input_that_a_group_went_past_is_found() -> None:
    first, third = processing(A0, name="one"), processing(C2, name="two")
    history = [send(SENT_A, SENT_B, SENT_C), first, third, group_at(3)]
    copies = copies_of(first, third)
    assert anomalies(*history, *final_both(A0, B1, C2, *copies)) == {Anomaly.UNPROCESSED_INPUT}


def test_input_whose_transaction_was_aborted_must_not_be_passed_at_the_end() -> None:
    first = processing(A0, name="one")
    undone = processing(B1, name="two", ending=Ending.ABORT, outcome=Outcome.FAIL)
    history = [send(SENT_A, SENT_B), first, undone]
    everything = final_both(A0, B1, *copies_of(first))
    assert anomalies(*history, group_at(2), *everything) == {Anomaly.UNPROCESSED_INPUT}
    assert anomalies(*history, group_at(1), *everything) == set()


def test_input_processed_twice_is_found() -> None:
    first, again = processing(A0, name="one"), processing(A0, B1, name="two")
    history = [send(SENT_A, SENT_B), first, again, group_at(2)]
    copies = copies_of(first, again)
    assert anomalies(*history, *final_both(A0, B1, *copies)) == {Anomaly.INPUT_PROCESSED_TWICE}


def test_input_processed_again_after_an_abort_is_fine() -> None:
    undone = processing(A0, name="one", ending=Ending.ABORT, outcome=Outcome.FAIL)
    again = processing(A0, B1, name="two")
    history = [send(SENT_A, SENT_B), undone, again, group_at(2)]
    assert anomalies(*history, *final_both(A0, B1, *copies_of(again))) == set()


def test_an_unknown_transaction_counts_if_its_output_is_there() -> None:
    unknown = processing(A0, name="one", outcome=Outcome.INFO)
    again = processing(A0, name="two")
    history = [send(SENT_A), unknown, again, group_at(1)]
    both, one = copies_of(unknown, again), copies_of(again)
    assert anomalies(*history, *final_both(A0, *both)) == {Anomaly.INPUT_PROCESSED_TWICE}
    assert anomalies(*history, *final_both(A0, *one)) == set()


@pytest.mark.parametrize(("outcome", "expected"), [("ok", {Anomaly.LOST_OFFSETS}), ("info", set())])
def test_a_group_behind_its_confirmed_offsets_is_found(
    outcome: str, expected: set[Anomaly]
) -> None:
    commit = operation(
        "reader", Kind.COMMIT_OFFSETS, group="processors", positions={X: 2},
        outcome=Outcome(outcome),
    )  # fmt: skip
    assert anomalies(commit, group_at(1), *final_both()) == expected
    assert anomalies(commit, group_at(2), *final_both()) == set()


# --- the file ---------------------------------------------------------------------------------


def test_a_history_file_of_a_killed_process_leaves_info(tmp_path: Path) -> None:
    path = tmp_path / "history"
    file = HistoryFile(path)
    done = file.invoke(Kind.SEND, sends=[Send(X, "a")])
    file.complete(done, Outcome.OK, sends=[SENT_A])
    cut = file.invoke(Kind.TRANSACTION)
    file.progress(cut, sends=[Send(X, "b")])
    file.ending(cut, Ending.COMMIT)
    with path.open("ab") as torn:
        torn.write(b'{"number": 2, "phase": "o')
    first, second = read_history_file(path, process="writer")
    assert (first.outcome, first.sends) == (Outcome.OK, (SENT_A,))
    assert (second.outcome, second.sends) == (Outcome.INFO, (Send(X, "b"),))
    assert second.ending is Ending.COMMIT
    assert second.completed_ns is None
    assert first.completed_ns is not None
    assert second.ending_ns is not None
    assert first.invoked_ns < first.completed_ns < second.invoked_ns < second.ending_ns


def test_a_report_names_the_operations() -> None:
    lost = send(SENT_A)
    report = check([lost, *final_both()])
    assert "lost write (1)" in str(report)
    assert f"{lost.name}: send ok" in str(report)
