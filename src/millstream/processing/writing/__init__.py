"""Frames into topics and views, once: rows and the receipt of their batch, or neither.

`output.py` is the way in for jobs; `topic_sink.py` is Spark's data sink. What a receipt means is
in `receipts.py`, pure.
"""
