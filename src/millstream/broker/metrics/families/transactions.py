"""Transactions: how many are open, for how long, and how they ended."""

from millstream.broker.metrics.family import Readings, counter, gauge
from millstream.broker.node import Node
from millstream.broker.transactions.transaction import TransactionState


@gauge("millstream_transactional_ids", "Transactional ids, by the state they are in.", "state")
def transactional_ids(node: Node) -> Readings:
    counts = dict.fromkeys(TransactionState, 0)
    for transaction in node.transactions:
        counts[transaction.state] += 1
    return [((state.value,), count) for state, count in counts.items()]


@gauge(
    "millstream_oldest_transaction_seconds",
    "For how long the oldest open transaction has been open; 0 if none is.",
)
def oldest_transaction(node: Node) -> float:
    now_ms = node.now_ms()
    ages_ms = [
        now_ms - one.started_ms
        for one in node.transactions
        if one.state is TransactionState.ONGOING
    ]
    return max(ages_ms, default=0) / 1000


@counter(
    "millstream_transactions_ended_total",
    "Transactions that were ended; timed_out ones are aborted ones, too.",
    "how",
)
def transactions_ended(node: Node) -> Readings:
    counts = node.transactions.counts
    yield ("committed",), counts.committed
    yield ("aborted",), counts.aborted
    yield ("timed_out",), counts.timed_out
