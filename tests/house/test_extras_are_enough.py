"""What an extra of pyproject.toml must bring, because what it is for imports it unasked."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
GENERATED_FOR = re.compile(r"^# Protobuf Python Version: ([\d.]+)$", re.MULTILINE)


def test_spark_comes_with_the_protobuf_that_its_state_needs() -> None:
    """`pyspark` does not ask for it: without it every job with state dies, and does not say why."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    messages = Path(pyspark.origin).parent / "sql/streaming/proto/StateMessage_pb2.py"
    (version,) = GENERATED_FOR.findall(messages.read_text(encoding="utf-8"))
    assert f"protobuf>={version}" in extras()["spark"]


def test_the_demo_comes_with_all_that_it_shows() -> None:
    """Events and SQL over views too: without them its figures stay empty."""
    (itself,) = (one for one in extras()["demo"] if one.startswith("millstream["))
    brought = set(itself.removeprefix("millstream[").removesuffix("]").split(","))
    assert {"eventsourcing", "postgres", "spark", "sql", "web"} <= brought


def extras() -> dict[str, list[str]]:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return found
