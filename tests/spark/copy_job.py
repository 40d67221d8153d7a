"""A job in a process of its own, to be killed: copies a topic exactly once, in small batches.

python -m tests.spark.copy_job BOOTSTRAP SOURCE TARGET JOB CHECKPOINT
"""

import sys

from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import stream_topics
from millstream.processing.session import open_session
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.topic_sink import stream_into_topic
from millstream.processing.writing.topic_write import TopicWrite
from tests.support.thread_dumps import dump_on_signal

BATCH_RECORDS = 100


def main(bootstrap: str, source: str, target: str, job: str, checkpoint: str) -> None:
    dump_on_signal()
    spark = open_session("copy", master="local[2]", quick_start=True)
    read = TopicRead(brokers=bootstrap, topics=(source,), records_max=BATCH_RECORDS)
    rows = stream_topics(spark, read, name="in").select("key", "value")
    write = TopicWrite(brokers=bootstrap, topic=target, job=job)
    writer = stream_into_topic(rows, write, BatchLog(checkpoint))
    writer = writer.option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
