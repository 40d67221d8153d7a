"""Stream processing on Spark: topics as DataFrames, in Arrow, and DataFrames back into topics.

    session.py, java.py     a quiet SparkSession with defaults for one machine
    topic_source.py         topics as batch and streaming DataFrames (the adapter to Spark)
    topic_sink.py           exactly once into topics (the adapter to Spark)

What is read next, what counts as lost and what was written already is decided in pure files:
`places.py`, `offset_plan.py`, `receipts.py`. They know no Spark, no broker and no clock.
`pyspark` is imported in this package only.
"""
