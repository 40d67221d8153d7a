"""A stream and a table by the step table of Kafka Streams, each step a batch of its own."""

import pytest

from millstream.processing.operators.enrichment_state import Enrichment, How
from millstream.processing.operators.stream_table import Arrival, TableChange
from tests.golden.join_steps import JoinStep, join_steps


@pytest.mark.parametrize("how", ["inner", "left"])
def test_every_step_gives_what_kafka_streams_gives(how: How) -> None:
    join = Enrichment(how=how)
    state = join.recall(None)
    for step in join_steps("stream_and_table"):
        result = join.step(state, changes_of(step), arrivals_of(step), watermark_ms=None)
        given = [
            joined.row["value"] + (joined.table_row["value"] if joined.table_row else "-")
            for joined in result.joined
        ]
        assert given == step.answers[how], f"at {step.time}"


def arrivals_of(step: JoinStep) -> list[Arrival]:
    """A record without a value is no row of a stream."""
    return [Arrival(row={"value": step.left})] if step.left not in (None, "null") else []


def changes_of(step: JoinStep) -> list[TableChange]:
    if step.right is None:
        return []
    row = None if step.right == "null" else {"value": step.right}
    return [TableChange(order=step.time, row=row)]
