"""Two jobs over one topic: clicks of a minute in a view, and every click by its page in a topic.

    millstream run examples/clicks.py

runs it with a broker and a Spark of its own. The same file on a cluster:

    MILLSTREAM_BROKERS=kafka:9092 MILLSTREAM_SPARK=spark://master:7077 millstream run clicks.py
"""

from pyspark.sql import DataFrame

from millstream import App, windows

app = App("clicks")
app.topic("clicks", schema="id BIGINT, page STRING, at TIMESTAMP", event_time="at", partitions=2)


@app.view(key=["window", "page"])
def clicks_a_minute(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(windows.tumbling("1 minute"), "page").count()


@app.job(to="visits", key="page")
def visits(clicks: DataFrame) -> DataFrame:
    return clicks.select("page", "id").filter("page != '/health'")


if __name__ == "__main__":
    app.run()
