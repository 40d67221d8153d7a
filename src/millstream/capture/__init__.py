"""Change data capture: a database is the leader, and everything else follows its log.

change.py says what is captured, source.py what every database offers, load/ how the rows that are
there already come in between the changes; runner.py writes both into topics, exactly once.
"""
