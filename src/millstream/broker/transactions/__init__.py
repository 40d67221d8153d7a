"""Transactions, pure: what a transactional id may do next, and what of it outlives the broker.

The shell around it is `transaction_coordinator.py`; the log's part (markers, what is stable, what
was aborted) is in `log/`.
"""
