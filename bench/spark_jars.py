"""Where the jars are that benchmarks put into Spark, fetched once per checkout with Maven.

Spark's own Kafka connector goes to `.cache/spark-kafka-4.2.0/`. No later connector is published; it
runs on Spark 4.3. The JDBC driver of PostgreSQL and delta-spark go to `.cache/spark-stores/`.
"""

from pathlib import Path

from tests.support.maven_jars import MavenJars

CONNECTOR_VERSION = "4.2.0"
CONNECTOR = MavenJars(
    name=f"spark-kafka-{CONNECTOR_VERSION}",
    pom=Path(__file__).with_name("spark-kafka-pom.xml"),
    sign="spark-sql-kafka-*.jar",
)
STORES = MavenJars(
    name="spark-stores",
    pom=Path(__file__).with_name("store-rates-pom.xml"),
    sign="delta-spark_*.jar",
)


def connector_jars() -> str:
    """As Spark's setting `spark.jars` wants them; fetches them on the first call."""
    return listed(CONNECTOR)


def store_jars() -> str:
    return listed(STORES)


def listed(jars: MavenJars) -> str:
    return ",".join(str(jar) for jar in sorted(jars.fetched().glob("*.jar")))
