"""Reads the analysed plan of a DataFrame off Spark, through its Java objects, into plain nodes.

Not a public interface of Spark: pinned with its version, and tested with it. Spark also says here
which output modes a plan allows.
"""

import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from millstream.base.errors import Rejected
from millstream.processing.jobs.job import OUTPUT_MODES
from millstream.processing.jobs.plan_node import PlanNode, wanted_mode
from millstream.processing.state.state_terms import LAST_USE, STATE_TERMS

Texts = dict[str, tuple[str, ...]]

TIMED = re.compile(r"#\d+-T\d+ms$")


class PlanNotStreamable(Rejected):
    def __init__(self, *, job: str, reason: str) -> None:
        super().__init__(f"job {job}: Spark cannot run this plan as a stream: {reason}")
        self.job, self.reason = job, reason


def read_plan(frame: DataFrame) -> PlanNode:
    return _node(_analyzed(frame))


def output_mode(frame: DataFrame, plan: PlanNode, *, job: str) -> str:
    """The mode that the plan asks for, or the other one where Spark refuses that."""
    wanted = wanted_mode(plan)
    others = [mode for mode in OUTPUT_MODES if mode != wanted]
    refusals = {}
    for mode in (wanted, *others):
        refusal = _refusal(frame, mode)
        if refusal is None:
            return mode
        refusals[mode] = refusal
    raise PlanNotStreamable(job=job, reason=refusals[wanted])


def _refusal(frame: DataFrame, mode: str) -> str | None:
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    try:
        checker.checkForStreaming(
            _analyzed(frame), modes.Append() if mode == "append" else modes.Update()
        )
    except AnalysisException as error:
        return str(error).partition(";\n")[0]
    return None


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _node(java: Any) -> PlanNode:
    name = str(java.nodeName())
    read = READERS.get(name)
    return PlanNode(
        name=name,
        is_streaming=bool(java.isStreaming()),
        texts=read(java) if read else {},
        children=tuple(_node(child) for child in _items(java.children())),
    )


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _texts(sequence: Any) -> tuple[str, ...]:
    return tuple(str(one.toString()) for one in _items(sequence))


def _project(java: Any) -> Texts:
    return {"computed": _texts(java.projectList())}


def _expand(java: Any) -> Texts:
    """One row becomes several: the first of each column's definitions stands for all."""
    names = _texts(java.output())
    first = _texts(java.projections().apply(0))
    return {"computed": tuple(f"{text} AS {name}" for text, name in zip(first, names, strict=True))}


def _aggregate(java: Any) -> Texts:
    return {
        "keys": _texts(java.groupingExpressions()),
        "state": _texts(java.aggregateExpressions()),
    }


def _join(java: Any) -> Texts:
    condition = java.condition()
    on = (str(condition.get().toString()),) if condition.isDefined() else ()
    return {"how": (str(java.joinType().toString()),), "state": on, "times": _times(java)}


def _deduplicate(java: Any) -> Texts:
    return {"keys": _texts(java.keys()), "times": _times(java)}


def _times(java: Any) -> tuple[str, ...]:
    """Of each child the first column with a watermark, by which Spark judges; else empty."""
    outputs = ([*_texts(child.output())] for child in _items(java.children()))
    return tuple(next(filter(TIMED.search, output), "") for output in outputs)


def _state_function(java: Any) -> Texts:
    count = int(java.groupingAttributesLen())
    keys = _texts(java.left().output())[:count]
    noted = [column.metadata() for column in _items(java.output())]
    return {
        "keys": keys,
        "mode": (str(java.outputMode().toString()),),
        "state": _noted(noted, STATE_TERMS),
        "last_use": _noted(noted, LAST_USE),
        "time_mode": (str(java.timeMode().toString()),),
        "times": _times(java),
    }


def _noted(columns: list[Any], key: str) -> tuple[str, ...]:
    return tuple(str(one.getString(key)) for one in columns if one.contains(key))


def _group_function(java: Any) -> Texts:
    return {"time_mode": (str(java.timeout().toString()),), "times": _times(java)}


def _watermark(java: Any) -> Texts:
    return {
        "column": (str(java.eventTime().toString()),),
        "delay": (str(java.delay().toString()),),
    }


def _source(java: Any) -> Texts:
    """A source has the name that its reader gave it, and reads topics by name or pattern."""
    name = str(java.sourceIdentifyingName().toString())
    options = java.extraOptions()
    reads = options.get("topics") or options.get("pattern") or str(java.sourceName())
    return {"source": (name.removeprefix('name="').removesuffix('"'),), "reads": (str(reads),)}


def _part(java: Any) -> Texts:
    return {"part": (str(java.id()),)}


def _reference(java: Any) -> Texts:
    return {"refers_to": (str(java.cteId()),)}


READERS: dict[str, Callable[[Any], Texts]] = {
    "Project": _project,
    "Expand": _expand,
    "Aggregate": _aggregate,
    "Join": _join,
    "Deduplicate": _deduplicate,
    "DeduplicateWithinWatermark": _deduplicate,
    "TransformWithStateInPySpark": _state_function,
    "FlatMapGroupsInPandasWithState": _group_function,
    "EventTimeWatermark": _watermark,
    "StreamingRelationV2": _source,
    "CTERelationDef": _part,
    "CTERelationRef": _reference,
}
