"""Records as Debezium's connector for PostgreSQL writes them: `format="debezium"`. Pure.

values.py has each column's schema and values, records.py keys, envelopes and boundaries. What
differs from Debezium 3.6, and why, is in docs/formats/capture_envelope.md.
"""
