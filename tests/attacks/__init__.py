"""Attacks that were tried and must stay without effect."""
