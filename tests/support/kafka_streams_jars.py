"""Where the jars of Kafka Streams are, fetched once per checkout with Maven.

They go to `.cache/kafka-streams-4.3.1/`. `python -m tests.support.kafka_streams_jars` fetches
ahead. Does not run anything of it: see streams_application.py.
"""

from pathlib import Path

from tests.support.kafka_jars import KAFKA_VERSION
from tests.support.maven_jars import MavenJars

KAFKA_STREAMS = MavenJars(
    name=f"kafka-streams-{KAFKA_VERSION}",
    pom=Path(__file__).with_name("kafka-streams-pom.xml"),
    sign="kafka-streams-*.jar",
)


def kafka_streams_classpath() -> str:
    """The class path with every jar of Kafka Streams; fetches them on the first call."""
    return f"{KAFKA_STREAMS.fetched()}/*"


if __name__ == "__main__":
    print(kafka_streams_classpath())
