"""Benchmarks: one file per question, which says what it measures and how to reproduce it."""
