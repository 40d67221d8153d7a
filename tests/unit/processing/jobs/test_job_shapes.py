"""Which changes of a job keep its checkpoint."""

from dataclasses import replace

import pytest

from millstream.processing.jobs.plan_node import PlanNode, shape_of, wanted_mode
from millstream.processing.jobs.plan_shape import Operator, PlanShape, compare, from_json, to_json

WINDOW = (
    "named_struct(start, knownnullable(precisetimestampconversion(((precisetimestampconversion("
    "at#0-T10000ms, TimestampType, LongType) - CASE WHEN (((precisetimestampconversion("
    "at#0-T10000ms, TimestampType, LongType) - 0) % {slide}) < cast(0 as bigint)) THEN 1 ELSE 2 "
    "END) - 0), LongType, TimestampType)), end, knownnullable(precisetimestampconversion((((x) - 0)"
    " + {size}), LongType, TimestampType))) AS window#6-T10000ms"
)


def node(
    name: str, *children: PlanNode, streaming: bool = True, **texts: str | list[str]
) -> PlanNode:
    listed = {
        role: (found,) if isinstance(found, str) else tuple(found) for role, found in texts.items()
    }
    return PlanNode(name=name, is_streaming=streaming, texts=listed, children=children)


SOURCE = node("StreamingRelationV2", source="clicks", reads="clicks")


def counted(*, by: str = "url#3", size: int = 60_000_000, number: int = 6) -> PlanNode:
    window = WINDOW.format(slide=60_000_000, size=size).replace("#6", f"#{number}")
    below = node("Project", SOURCE, computed=[window, "at#0-T10000ms", "url#3"])
    keys = [f"window#{number}-T10000ms", by]
    return node("Aggregate", below, keys=keys, state=[*keys, "count(1) AS n#5L"])


def shape(root: PlanNode, output: str = "a view by url") -> PlanShape:
    return shape_of(root, output=output)


# What a shape is


def test_a_shape_has_sources_and_operators_without_sparks_numbers() -> None:
    assert shape(counted()) == PlanShape(
        sources={"clicks": "clicks"},
        operators=(
            Operator(kind="aggregation", keys=("window(at, 1m)", "url"), state=("count(1)",)),
        ),
        watermarks={},
        output="a view by url",
    )


def test_sparks_numbers_do_not_matter() -> None:
    assert shape(counted(number=6)) == shape(counted(number=77))


def test_nor_do_those_of_python_functions() -> None:
    def summed(number: int) -> PlanNode:
        state = ["url#1", f"sum(<lambda>(n#2L)#{number}L) AS total#3L"]
        return node("Aggregate", SOURCE, keys="url#1", state=state)

    assert shape(summed(7)) == shape(summed(8))
    assert shape(summed(7)).operators[0].state == ("sum(<lambda>(n))",)


def test_a_hopping_window_says_how_often() -> None:
    (operator,) = shape(counted(size=300_000_000)).operators
    assert operator.keys[0] == "window(at, 5m every 1m)"


def test_a_session_window_says_its_gap() -> None:
    computed = (
        "named_struct(start, precisetimestampconversion(precisetimestampconversion(at#1-T10000ms, "
        "TimestampType, LongType), LongType, TimestampType), end, knownnullable(x(cast(at#1 + "
        "cast(5 minutes as interval) as timestamp)))) AS session_window#2-T10000ms"
    )
    below = node("Project", SOURCE, computed=computed)
    grouped = node("Aggregate", below, keys="session_window#2-T10000ms")
    (operator,) = shape(grouped).operators
    assert operator.keys == ("session_window(at, gap 5 minutes)",)


def test_a_computed_key_is_spelled_out() -> None:
    below = node("Project", SOURCE, computed="lower(url#1) AS k#2")
    (operator,) = shape(node("Aggregate", below, keys="k#2")).operators
    assert operator.keys == ("lower(url)",)


def test_a_new_name_for_an_aggregate_keeps_its_state() -> None:
    one = node("Aggregate", SOURCE, keys="url#1", state=["url#1", "sum(n#2L) AS total#3L"])
    two = node("Aggregate", SOURCE, keys="url#1", state=["url#1", "sum(n#2L) AS amount#4L"])
    assert shape(one) == shape(two)


def test_a_join_keeps_state_only_between_two_streams() -> None:
    static = node("Range", streaming=False)
    assert shape(node("Join", SOURCE, static, how="Inner")).operators == ()
    (join,) = shape(node("Join", SOURCE, SOURCE, how="LeftOuter", state="(a#1 = b#2)")).operators
    assert str(join) == "LeftOuter join of (a = b)"


def test_a_static_aggregate_keeps_no_state() -> None:
    assert shape(node("Aggregate", SOURCE, streaming=False, keys="a#1")).operators == ()


def test_a_shape_comes_back_from_json() -> None:
    found = replace(shape(counted()), watermarks={"at": "10 minutes"})
    assert from_json(to_json(found)) == found


# The output mode


def test_what_changes_is_updated_and_what_grows_is_appended() -> None:
    assert wanted_mode(counted()) == "update"
    assert wanted_mode(SOURCE) == "append"
    assert wanted_mode(node("Join", SOURCE, SOURCE)) == "append"


def test_an_operator_can_tell_its_mode() -> None:
    assert wanted_mode(node("TransformWithStateInPySpark", SOURCE, mode="Append")) == "append"
    assert wanted_mode(node("TransformWithStateInPySpark", SOURCE, mode="Update")) == "update"


# What may change


def test_the_same_job_is_unchanged() -> None:
    assert compare(shape(counted()), shape(counted()), same_code=True).verdict == "unchanged"


def test_a_filter_may_be_added() -> None:
    filtered = node("Filter", counted())
    verdict = compare(shape(counted()), shape(filtered), same_code=False)
    assert (verdict.verdict, verdict.can_start) == ("goes on", True)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (counted(by="user#9"), "by window(at, 1m), user"),
        (counted(size=300_000_000), "by window(at, 5m every 1m), url"),
        (node("Project", SOURCE), "and now is none"),
        (node("Deduplicate", counted(), keys="n#5L"), "and deduplication by n"),
    ],
)
def test_state_may_not_change(changed: PlanNode, reason: str) -> None:
    verdict = compare(shape(counted()), shape(changed), same_code=False)
    assert not verdict.can_start
    assert reason in str(verdict)
    assert str(verdict).startswith("must be rebuilt: its state was aggregation of count(1) by")


def test_a_source_may_be_added_and_removed() -> None:
    old = PlanShape(sources={"clicks": "clicks", "visits": "visits"})
    new = PlanShape(sources={"clicks": "clicks", "orders": "orders"})
    verdict = compare(old, new, same_code=False)
    assert verdict.verdict == "goes on"
    assert verdict.reasons == (
        "source orders is new, and read from its start",
        "source visits is no longer read",
    )


def test_a_job_of_other_sources_altogether_is_another_job() -> None:
    verdict = compare(
        PlanShape(sources={"clicks": "clicks"}), PlanShape(sources={"a": "a"}), same_code=True
    )
    assert "it read clicks, and now a" in str(verdict)
    assert not verdict.can_start


def test_a_source_that_reads_another_topic_is_another_source() -> None:
    old, new = PlanShape(sources={"c": "clicks"}), PlanShape(sources={"c": "visits"})
    assert "source c read clicks, and now visits" in str(compare(old, new, same_code=True))


def test_another_key_of_a_view_needs_a_rebuild() -> None:
    verdict = compare(shape(counted()), shape(counted(), "a view by user"), same_code=True)
    assert str(verdict) == (
        "must be rebuilt: its rows went to a view by url, and now to a view by user"
    )


def test_another_lateness_is_told() -> None:
    old = replace(shape(SOURCE), watermarks={"at": "10 seconds"})
    new = replace(shape(SOURCE), watermarks={"at": "1 hours"})
    verdict = compare(old, new, same_code=True)
    assert str(verdict) == "goes on: the watermark of at was 10 seconds behind, now 1 hours"
