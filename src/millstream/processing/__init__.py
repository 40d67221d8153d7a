"""Stream processing on Spark: topics as frames, functions of them as jobs, and back into topics.

    session.py, java.py   a quiet SparkSession with defaults for one machine
    reading/              topics and tables as frames, in Arrow, judged by their time
    operators/            windows, joins, changelogs, clocks
    jobs/                 functions with a name, a checkpoint and an epoch; run, watched, restarted
    writing/              into topics and views, exactly once
    state/                what jobs remember
    steps/                scripts that try a job, for tests

Decisions are made in pure files, which know no Spark, no broker and no clock. `pyspark` is imported
in this package only.
"""
