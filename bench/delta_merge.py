"""delta-spark's MERGE, in a Spark that it has a build for; bench/store_rates.py starts this.

    .cache/spark-4.2.0/bin/python bench/delta_merge.py JARS TABLE

Each line of standard input names a Parquet file with a batch; a line of output says that it is
merged into the table by `id`. Knows nothing of Millstream, which needs a later Spark.
"""

import sys

from pyspark.sql import SparkSession

MERGE = """
MERGE INTO delta.`{table}` t USING batch s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


def open_session(jars: str) -> SparkSession:
    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # For tables of this size; its defaults are 200 and 50, and would make it slower.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2]").appName("merge")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(jars: str, table: str) -> None:
    spark = open_session(jars)
    for number, line in enumerate(sys.stdin):
        batch = spark.read.parquet(line.strip())
        if number == 0:
            batch.write.format("delta").save(table)
        else:
            batch.createOrReplaceTempView("batch")
            spark.sql(MERGE.format(table=table))
        print("merged", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
