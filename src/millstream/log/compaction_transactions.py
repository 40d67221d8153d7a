"""Transactions as a cleaning meets them: what was aborted goes, a marker goes after its records.

Pure. It is shown every batch of the cleaned range in order. A marker is *spent* once nothing of
its transaction is left in the log: then nobody needs to be told how it ended (KIP-98, KIP-534).
"""

from collections import deque
from collections.abc import Iterable

from millstream.log.record_batch import BatchHeader, Marker
from millstream.log.transaction_index import AbortedTransaction


class TransactionTracker:
    """Owned by one pass over the log. `aborted` has every transaction that reaches into it."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda one: one.first_offset))
        # Of the transactions under way, by producer: those that will be aborted, those of them
        # whose records were met, and others whose records were met.
        self._aborting: dict[int, AbortedTransaction] = {}
        self._met_aborted: set[int] = set()
        self._met: set[int] = set()
        # Those whose marker stays: what the index of the cleaned segment must name.
        self.still_aborted: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch never counted."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        if header.producer_id in self._aborting:
            self._met_aborted.add(header.producer_id)
            return True
        self._met.add(header.producer_id)
        return False

    def is_spent(self, header: BatchHeader, marker: Marker | None) -> bool:
        """Whether a control batch has no records left to speak of; `marker` is what it says."""
        self._begin_up_to(header.last_offset)
        if marker is None:  # emptied by a cleaning before
            return header.record_count == 0
        producer_id = header.producer_id
        if marker.is_commit:
            is_spent = producer_id not in self._met
            self._met.discard(producer_id)
            return is_spent
        aborted = self._aborting.pop(producer_id, None)
        is_spent = producer_id not in self._met_aborted
        self._met_aborted.discard(producer_id)
        if aborted is not None and not is_spent:
            self.still_aborted.append(aborted)
        return is_spent

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            one = self._coming.popleft()
            self._aborting[one.producer_id] = one
