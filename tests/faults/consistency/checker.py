"""Holds a history against what Kafka promises. Pure: operations in, a report out.

It needs a last phase of reading: every partition from its start, with both isolations, after all
faults are healed and each transactional id has begun anew. It does not look at values, only at
which is which, and it knows no clock but the history's.
"""

from itertools import chain

from tests.faults.consistency.anomaly import Report
from tests.faults.consistency.cycles import cycles
from tests.faults.consistency.facts import Facts
from tests.faults.consistency.history import History
from tests.faults.consistency.order_checks import poll_order, send_order, sends_skipping
from tests.faults.consistency.processing_checks import (
    inputs_processed_twice,
    lost_offsets,
    unprocessed_inputs,
)
from tests.faults.consistency.record_checks import (
    duplicates,
    inconsistent_offsets,
    lost_writes,
    unsent_values,
)
from tests.faults.consistency.transaction_checks import (
    aborted_reads,
    hanging_transactions,
    precommitted_reads,
)

CHECKS = (
    lost_writes,
    duplicates,
    unsent_values,
    inconsistent_offsets,
    aborted_reads,
    precommitted_reads,
    hanging_transactions,
    poll_order,
    send_order,
    sends_skipping,
    unprocessed_inputs,
    inputs_processed_twice,
    lost_offsets,
    cycles,
)


def check(history: History) -> Report:
    facts = Facts(history)
    return Report(tuple(chain.from_iterable(one(facts) for one in CHECKS)))
