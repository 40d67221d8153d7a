"""Where Apache Kafka's jars are, fetched once per checkout with Maven.

They go to `.cache/kafka-4.3.1/`. `python -m tests.support.kafka_jars` fetches ahead. Does not run
anything of Kafka: see apache_kafka.py and java_tools.py.
"""

from pathlib import Path

from tests.support.maven_jars import MavenJars, MissingToolError, java_command

__all__ = ["KAFKA_VERSION", "MissingToolError", "java_command", "kafka_classpath"]

KAFKA_VERSION = "4.3.1"
KAFKA = MavenJars(
    name=f"kafka-{KAFKA_VERSION}",
    pom=Path(__file__).with_name("kafka-pom.xml"),
    sign="kafka-tools-*.jar",
)


def kafka_classpath() -> str:
    """The class path with every jar of Kafka and its tools; fetches them on the first call."""
    return f"{KAFKA.fetched()}/*"


if __name__ == "__main__":
    print(kafka_classpath(), java_command())
