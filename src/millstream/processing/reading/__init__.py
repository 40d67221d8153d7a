"""Topics as frames: what a batch reads, from where to where, decoded, and judged by its time.

`frames.py` is the way in for declared topics and tables, `topic_source.py` is Spark's data source.
Plans (`offset_plan.py`), places and judgements (`lateness.py`) are pure; `topic_offsets.py` and
`range_reader.py` ask the broker.
"""
