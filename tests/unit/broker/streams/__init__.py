"""Streams groups, rule by rule."""
