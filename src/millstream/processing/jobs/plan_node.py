"""Spark's analysed plan as plain values, and what of it a checkpoint depends on. Pure.

`plan_reader.py` copies a plan into these nodes; here its expressions are made comparable: without
Spark's numbers for columns (`url#12`), with computed keys spelled out, and windows in short.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from millstream.base.quantity import format_duration_ms
from millstream.processing.jobs.plan_shape import Operator, PlanShape

# url#12, at#3-T10000ms, n#5L: the number is Spark's, the rest is a watermark or the type.
COLUMN = re.compile(r"([A-Za-z_]\w*)#(\d+)L?(?:-T\d+ms)?")
# half(n#1L)#7L: the result of a Python function has a number, too.
NUMBER = re.compile(r"(?<=\))#\d+L?")
ALIAS = re.compile(r"(.*) AS ([A-Za-z_]\w*)#(\d+)L?(?:-T\d+ms)?", re.DOTALL)
TIMED_ALIAS = re.compile(r"(.*) AS .*#(\d+)-T\d+ms", re.DOTALL)
# A window is arithmetic on microseconds by the time it is analysed.
WINDOW = re.compile(r"^named_struct\(start, .*precisetimestampconversion\((\w+),", re.DOTALL)
SLIDE = re.compile(r"% (\d+)\)")
SIZE = re.compile(r"\+ (\d+)\), LongType")
GAP = re.compile(r"cast\(([\w ]+) as interval\)")
DEPTH_MAX = 8

KINDS = {
    "Aggregate": "aggregation",
    "Join": "join",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication within the watermark",
    "TransformWithState": "state function",
    "TransformWithStateInPySpark": "state function",
    "FlatMapGroupsWithState": "state function",
    "FlatMapGroupsInPandasWithState": "state function",
    "GlobalLimit": "limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """One node of a plan; `texts` are its expressions by role, as Spark prints them."""

    name: str
    is_streaming: bool
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    children: tuple["PlanNode", ...] = ()


def shape_of(root: PlanNode, *, output: str) -> PlanShape:
    nodes = list(_walk(root))
    definitions = dict(_definitions(nodes))
    return PlanShape(
        sources={node.texts["source"][0]: node.texts["reads"][0] for node in _sources(nodes)},
        operators=tuple(_operator(node, definitions) for node in nodes if keeps_state(node)),
        watermarks={
            _plain(node.texts["column"][0], {}): node.texts["delay"][0]
            for node in nodes
            if node.name == "EventTimeWatermark"
        },
        output=output,
    )


def keeps_state(node: PlanNode) -> bool:
    if node.name == "Join":
        return all(child.is_streaming for child in node.children)
    return node.name in KINDS and node.is_streaming


def wanted_mode(root: PlanNode) -> str:
    """The output mode to prefer: what changes is updated, what only grows is appended."""
    stateful = [node for node in _walk(root) if keeps_state(node)]
    told = {text.lower() for node in stateful for text in node.texts.get("mode", ())}
    if len(told) == 1:
        return told.pop()
    return "update" if any(node.name == "Aggregate" for node in stateful) else "append"


def _walk(node: PlanNode) -> Iterator[PlanNode]:
    """From the sources up, as Spark numbers the operators with state."""
    for child in node.children:
        yield from _walk(child)
    yield node


def _sources(nodes: list[PlanNode]) -> Iterator[PlanNode]:
    return (node for node in nodes if "source" in node.texts)


def nodes_in(root: PlanNode) -> Iterator[PlanNode]:
    return _walk(root)


def definitions_in(root: PlanNode) -> Mapping[str, str]:
    """What computed columns with a watermark are, by their number, whatever they are called."""
    texts = (text for node in _walk(root) for text in node.texts.get("computed", ()))
    found = map(TIMED_ALIAS.fullmatch, texts)
    return {alias[2]: alias[1] for alias in found if alias}


def _definitions(nodes: list[PlanNode]) -> Iterator[tuple[str, str]]:
    """What computed columns are, by their number."""
    for node in nodes:
        for text in node.texts.get("computed", ()):
            if found := ALIAS.fullmatch(text):
                yield found[3], found[1]


def _operator(node: PlanNode, definitions: Mapping[str, str]) -> Operator:
    keys = tuple(_plain(text, definitions) for text in node.texts.get("keys", ()))
    state = (_plain(_unnamed(text), definitions) for text in node.texts.get("state", ()))
    kind = " ".join([*node.texts.get("how", ()), KINDS[node.name]])
    return Operator(kind=kind, keys=keys, state=tuple(one for one in state if one not in keys))


def _unnamed(text: str) -> str:
    """An aggregate whatever it is called: a new name for a column keeps its state."""
    found = ALIAS.fullmatch(text)
    return found[1] if found else text


def _plain(text: str, definitions: Mapping[str, str], depth: int = 0) -> str:
    def spelled(column: re.Match[str]) -> str:
        number = column[2]
        if number in definitions and depth < DEPTH_MAX:
            return _plain(definitions[number], definitions, depth + 1)
        return column[1]

    return _window_in_short(NUMBER.sub("", COLUMN.sub(spelled, text)))


def _window_in_short(text: str) -> str:
    found = WINDOW.match(text)
    if found is None:
        return text
    if gap := GAP.search(text):
        return f"session_window({found[1]}, gap {gap[1]})"
    slide, size = SLIDE.search(text), SIZE.search(text)
    if slide is None or size is None:
        return text
    length, every = _duration(size[1]), _duration(slide[1])
    return f"window({found[1]}, {length}" + (f" every {every})" if every != length else ")")


def _duration(microseconds: str) -> str:
    return format_duration_ms(int(microseconds) // 1_000)
