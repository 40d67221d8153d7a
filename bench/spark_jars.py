"""Where the jars of Spark's own Kafka connector are, fetched once per checkout with Maven.

They go to `.cache/spark-kafka-4.2.0/`. No later connector is published; it runs on Spark 4.3.
"""

from pathlib import Path

from tests.support.maven_jars import MavenJars

CONNECTOR_VERSION = "4.2.0"
CONNECTOR = MavenJars(
    name=f"spark-kafka-{CONNECTOR_VERSION}",
    pom=Path(__file__).with_name("spark-kafka-pom.xml"),
    sign="spark-sql-kafka-*.jar",
)


def connector_jars() -> str:
    """As Spark's setting `spark.jars` wants them; fetches them on the first call."""
    return ",".join(str(jar) for jar in sorted(CONNECTOR.fetched().glob("*.jar")))
