"""Which events the operators of a plan can use: by source, from the plan alone. Pure.

On its way from a source an event meets operators. The first one that judges by time decides: what
it takes, those after it take too. A job without such an operator uses every event. Spark's
operators judge by a column that has a watermark, which Spark prints as `at#3-T10000ms`.
"""

import json
import re
from collections.abc import Iterator, Mapping

from millstream.base.quantity import parse_duration_ms
from millstream.processing.jobs.plan_node import (
    GAP,
    SIZE,
    SLIDE,
    PlanNode,
    definitions_in,
    keeps_state,
    nodes_in,
)
from millstream.processing.reading.last_use import BY_EVENT, MS_US, LastUse, Uses, joined

# A column itself, also under another name; not what is computed of one.
WATERMARKED = re.compile(r"(?:.*#(\d+)-T\d+ms AS )?.*#(\d+)-T\d+ms", re.DOTALL)
# (... - 15000000) % 60000000): where windows start, and how often.
START = re.compile(r"- (-?\d+)\) % \d+\)")
EVENT_TIME_MODES = ("EventTime", "EventTimeTimeout")
WITH_PARTS = "WithCTE"
DEPTH_MAX = 8


def uses_of(root: PlanNode) -> Mapping[str, Uses]:
    """By source: what the first operators that judge by time on its ways through the plan take."""
    found: dict[str, Uses] = {}
    for source, uses in _Ways(root).met(root, None):
        found[source] = joined(found[source], uses) if source in found else uses
    return found


class _Ways:
    """Through a plan, from its top down to its sources. SQL's WITH has parts of a plan beside it,
    by number: the way goes through one wherever it is referred to."""

    def __init__(self, root: PlanNode) -> None:
        self._definitions = definitions_in(root)
        self._parts = {node.texts["part"][0]: node for node in nodes_in(root) if _is_part(node)}

    def met(self, node: PlanNode, above: Uses) -> Iterator[tuple[str, Uses]]:
        """Each source below this node, with what it meets on the way; `above` is what comes
        after."""
        if "source" in node.texts:
            yield node.texts["source"][0], above
        for part in node.texts.get("refers_to", ()):
            yield from self.met(self._parts[part], above)
        for place, child in enumerate(node.children):
            if node.name != WITH_PARTS or not _is_part(child):
                yield from self.met(child, _taken(node, place, above, self._definitions))


def _is_part(node: PlanNode) -> bool:
    return "part" in node.texts


def _taken(node: PlanNode, place: int, above: Uses, definitions: Mapping[str, str]) -> Uses:
    """What this node takes from its child at `place`; what follows, if it does not judge."""
    if not keeps_state(node):
        return above
    match node.name:
        case "Aggregate":
            return _by_columns(node.texts["keys"], definitions)
        case "Join":
            return _by_columns(node.texts["times"][place : place + 1], definitions)
        case "Deduplicate" | "DeduplicateWithinWatermark":
            return _by_columns(node.texts["times"], definitions) or above
        case "GlobalLimit":
            return above
    return _of_function(node, above, definitions)


def _of_function(node: PlanNode, above: Uses, definitions: Mapping[str, str]) -> Uses:
    """A state function. Ours say what they take; others are judged by Spark if they go by time."""
    if noted := node.texts.get("last_use"):
        return tuple(LastUse(**json.loads(text)) for text in noted)
    if not {*node.texts.get("time_mode", ())} & {*EVENT_TIME_MODES}:
        return above
    return _by_columns(node.texts.get("times", ()), definitions) or above


def _by_columns(texts: tuple[str, ...], definitions: Mapping[str, str]) -> Uses:
    """Spark judges by the first column with a watermark; without one it takes everything."""
    for text in texts:
        if column := WATERMARKED.fullmatch(text):
            return _by_column(_defined(column[1] or column[2], definitions))
    return None


def _defined(number: str, definitions: Mapping[str, str]) -> str:
    """The expression behind a column, through the names that it was given."""
    text = definitions.get(number, "")
    for _ in range(DEPTH_MAX):
        renamed = WATERMARKED.fullmatch(text)
        if renamed is None or renamed[2] not in definitions:
            break
        text = definitions[renamed[2]]
    return text


def _by_column(text: str) -> Uses:
    """A window is arithmetic by now. What is none of these is judged as the event's own time."""
    if not text.startswith("named_struct(start,"):
        return BY_EVENT
    if gap := GAP.search(text):
        return _session(gap[1])
    start, every, size = START.search(text), SLIDE.search(text), SIZE.search(text)
    if start is None or every is None or size is None:
        return BY_EVENT
    use = LastUse(span_us=int(size[1]), every_us=int(every[1]), start_us=int(start[1]))
    return (use,)


def _session(gap: str) -> Uses:
    try:
        return (LastUse(span_us=parse_duration_ms(gap) * MS_US),)
    except ValueError:  # a gap that depends on the row
        return BY_EVENT
