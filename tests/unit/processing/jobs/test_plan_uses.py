"""Which events the operators of a plan can use, from the plan alone."""

import json

from millstream.processing.jobs.plan_node import PlanNode
from millstream.processing.jobs.plan_uses import uses_of
from millstream.processing.reading.last_use import BY_EVENT, LastUse
from tests.unit.processing.jobs.test_job_shapes import SOURCE, WINDOW, node

MINUTE = 60_000_000
TIME = "at#0-T10000ms"
HOPPING = LastUse(span_us=5 * MINUTE, every_us=MINUTE, start_us=0)
SESSION = (
    "named_struct(start, precisetimestampconversion(precisetimestampconversion(at#0-T10000ms, "
    "TimestampType, LongType), LongType, TimestampType), end, knownnullable(x(cast(at#0-T10000ms + "
    "cast({gap} as interval) as timestamp)))) AS window#6-T10000ms"
)


def projected(window: str, child: PlanNode = SOURCE) -> PlanNode:
    return node("Project", child, computed=[window, TIME])


def counted(child: PlanNode, by: str = "window#6-T10000ms") -> PlanNode:
    return node("Aggregate", child, keys=["url#3", by], state="count(1) AS n#5L")


def hopping(child: PlanNode = SOURCE, start: str = "0") -> PlanNode:
    text = WINDOW.format(slide=MINUTE, size=5 * MINUTE).replace("- 0) %", f"- {start}) %")
    return projected(text, child)


def test_a_job_without_an_operator_that_goes_by_time_uses_every_event() -> None:
    assert uses_of(node("Project", SOURCE, computed=["url#3"])) == {"clicks": None}
    assert uses_of(counted(SOURCE, by="user#4")) == {"clicks": None}


def test_a_window_is_read_off_the_plan_under_whatever_name() -> None:
    assert uses_of(counted(hopping())) == {"clicks": (HOPPING,)}
    renamed = node("Project", hopping(), computed=["window#6-T10000ms AS w#9-T10000ms"])
    assert uses_of(counted(renamed, by="w#9-T10000ms")) == {"clicks": (HOPPING,)}
    (moved,) = uses_of(counted(hopping(start="-15000000")))["clicks"] or ()
    assert moved.start_us == -15_000_000


def test_a_session_of_spark_s_has_its_gap() -> None:
    found = uses_of(counted(projected(SESSION.format(gap="10 minutes"))))
    assert found == {"clicks": (LastUse(span_us=10 * MINUTE),)}
    by_row = "CASE WHEN (u#3 = 1) THEN 5 minutes ELSE 10 minutes END"
    assert uses_of(counted(projected(SESSION.format(gap=by_row)))) == {"clicks": BY_EVENT}


def test_a_time_that_is_a_key_itself_is_judged_alone() -> None:
    assert uses_of(counted(SOURCE, by=TIME)) == {"clicks": BY_EVENT}


def test_a_join_judges_the_rows_of_each_side_that_has_a_time() -> None:
    other = node("StreamingRelationV2", source="orders", reads="orders")
    join = node("Join", SOURCE, other, how="Inner", state=[], times=[TIME, ""])
    assert uses_of(join) == {"clicks": BY_EVENT, "orders": None}
    static = node("LocalRelation", streaming=False)
    enriched = node("Join", SOURCE, static, how="Inner", state=[], times=[TIME, ""])
    assert uses_of(enriched) == {"clicks": None}, "Spark keeps no state for a static side"


def test_the_first_operator_that_judges_decides() -> None:
    once = node("DeduplicateWithinWatermark", SOURCE, keys="id#2", times=TIME)
    assert uses_of(counted(hopping(once))) == {"clicks": BY_EVENT}
    timeless = node("Deduplicate", SOURCE, keys="id#2", times="")
    assert uses_of(counted(hopping(timeless))) == {"clicks": (HOPPING,)}


def test_a_state_function_says_what_it_uses_or_is_judged_if_it_goes_by_time() -> None:
    def function(time_mode: str, last_use: list[str]) -> PlanNode:
        return node(
            "TransformWithStateInPySpark",
            SOURCE,
            times=[TIME],
            time_mode=time_mode,
            last_use=last_use,
        )

    ours = json.dumps({"span_us": 7, "from_1970": False})
    use = LastUse(span_us=7, from_1970=False)
    assert uses_of(function("EventTime", [ours])) == {"clicks": (use,)}
    assert uses_of(function("EventTime", [])) == {"clicks": BY_EVENT}
    assert uses_of(function("None", [])) == {"clicks": None}


def test_of_a_source_that_is_read_twice_the_most_lenient_way_counts() -> None:
    union = node("Union", counted(hopping()), counted(SOURCE, by=TIME))
    assert uses_of(union) == {"clicks": (HOPPING, *(BY_EVENT or ()))}
    assert uses_of(node("Union", counted(hopping()), SOURCE)) == {"clicks": None}
