"""What can be wrong with a history, by the names that Jepsen's analyses use."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults.consistency.history import Operation

EXPLAINED_MAX = 5


class Anomaly(StrEnum):
    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    UNSENT_VALUE = "value that nobody sent"
    INCONSISTENT_OFFSET = "inconsistent offset"
    ABORTED_READ = "aborted read (G1a)"
    PRECOMMITTED_READ = "precommitted read"
    HANGING_TRANSACTION = "hanging transaction"
    POLL_SKIP = "poll skip"
    NONMONOTONIC_POLL = "non-monotonic poll"
    NONMONOTONIC_SEND = "non-monotonic send"
    G1C = "circular information flow (G1c)"
    UNPROCESSED_INPUT = "unprocessed input"
    INPUT_PROCESSED_TWICE = "input processed twice"
    LOST_OFFSETS = "lost offsets"
    # What Kafka allows. Counted, so that a reader knows; never a failure.
    G0 = "write cycle (G0)"
    G1C_BY_WRITE_ORDER = "circular information flow by write order"
    SEND_SKIP_IN_TRANSACTION = "send skip within a transaction"
    POLL_SKIP_IN_REBALANCE = "poll skip across a rebalance"
    NONMONOTONIC_POLL_IN_REBALANCE = "non-monotonic poll across a rebalance"


# Kafka isolates reads, not writes: records of transactions that run at the same time stand in the
# log as they came. And a group goes on where it committed, not where the last owner had read.
ALLOWED = frozenset(
    {
        Anomaly.G0,
        Anomaly.G1C_BY_WRITE_ORDER,
        Anomaly.SEND_SKIP_IN_TRANSACTION,
        Anomaly.POLL_SKIP_IN_REBALANCE,
        Anomaly.NONMONOTONIC_POLL_IN_REBALANCE,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly, said in a sentence, with the operations that show it."""

    anomaly: Anomaly
    sentence: str
    operations: Sequence[Operation] = ()

    def __str__(self) -> str:
        shown = "".join(f"\n    {operation}" for operation in self.operations)
        return f"{self.anomaly}: {self.sentence}{shown}"


@dataclass(frozen=True, slots=True)
class Report:
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def anomalies(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.anomaly not in ALLOWED]

    @property
    def counts(self) -> Counter[Anomaly]:
        """Of everything that was found, also of what is allowed."""
        return Counter(finding.anomaly for finding in self.findings)

    def __str__(self) -> str:
        """How often each anomaly was found, and the first few of each."""
        lines = []
        for anomaly, count in self.counts.items():
            first = [str(f) for f in self.findings if f.anomaly is anomaly][:EXPLAINED_MAX]
            note = ", allowed" if anomaly in ALLOWED else ""
            lines.append(f"{anomaly} ({count}{note})")
            lines += [f"  {sentence}" for sentence in first if anomaly not in ALLOWED]
        return "\n".join(lines) or "no anomaly"
