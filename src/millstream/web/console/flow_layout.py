"""Where the nodes of a flow are drawn: columns from left to right, each after all that feeds it.

A layered picture in the manner of Sugiyama: the longest way to a node is its column; within a
column nodes stand near those they are joined to, so that few lines cross. Topics that nothing
feeds stand with those that captures do: what comes in is one column. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from millstream.web.console.facts import Flow, Node

BOX_HEIGHT = 58
# As wide as the longest name of the column, within reason: a name beyond that is cut.
BOX_WIDTH_MIN, BOX_WIDTH_MAX = 190, 300
NAME_INDENT, NAME_MARGIN, NAME_LETTER = 31, 10, 8.7  # of the widest font that is likely
NAME_LETTERS_MAX = int((BOX_WIDTH_MAX - NAME_INDENT - NAME_MARGIN) / NAME_LETTER)
COLUMN_GAP, ROW_GAP = 42, 14
MARGIN = 4
SOURCES = ("capture", "aggregate")
SWEEPS = 6
# Of more, a picture tells less than a list.
NODES_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    node: Node
    x: float
    y: float
    width: float

    @property
    def label(self) -> str:
        name = self.node.name
        return name if len(name) <= NAME_LETTERS_MAX else f"{name[: NAME_LETTERS_MAX - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A path of an SVG, from the right of one box to the left of another."""

    source: Node
    target: Node
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    width: float
    height: float
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]


def picture_of(flow: Flow) -> Picture | None:
    """None if there is nothing, or too much, to draw."""
    if not 0 < len(flow.nodes) <= NODES_MAX:
        return None
    columns = _ordered(_columns(flow), flow)
    height = max(map(_column_height, columns)) + 2 * MARGIN
    widths = [_width(column) for column in columns]
    lefts = accumulate((width + COLUMN_GAP for width in widths), initial=MARGIN)
    placed = [
        _boxes(column, height, x=x, width=width)
        for column, x, width in zip(columns, lefts, widths, strict=False)
    ]
    boxes = {box.node: box for column in placed for box in column}
    return Picture(
        width=sum(widths) + (len(columns) - 1) * COLUMN_GAP + 2 * MARGIN,
        height=height,
        boxes=tuple(boxes.values()),
        links=tuple(_link(boxes[a], boxes[b]) for a, b in flow.edges),
    )


# --- columns ------------------------------------------------------------------------------------


def _columns(flow: Flow) -> list[list[Node]]:
    depths = _depths(flow)
    columns: list[list[Node]] = [[] for _ in range(max(depths.values()) + 1)]
    for node in flow.nodes:
        columns[depths[node]].append(node)
    return [column for column in columns if column]


def _depths(flow: Flow) -> dict[Node, int]:
    """The longest way to each node."""
    before = _neighbours([(b, a) for a, b in flow.edges])
    is_fed = any(node.kind in SOURCES for node in flow.nodes)
    depths = {
        node: 1 for node in flow.nodes if is_fed and node.kind == "topic" and not before.get(node)
    }
    for node in flow.nodes:
        _depth(node, before, depths, on_way=frozenset())
    return depths


def _depth(
    node: Node,
    before: Mapping[Node, Sequence[Node]],
    depths: dict[Node, int],
    *,
    on_way: frozenset[Node],
) -> int:
    """A circle is cut where it is met: a job may read what it writes."""
    if node not in depths:
        way = on_way | {node}
        found = [
            _depth(one, before, depths, on_way=way) + 1
            for one in before.get(node, ())
            if one not in way
        ]
        depths[node] = max(found, default=0)
    return depths[node]


def _neighbours(edges: Sequence[tuple[Node, Node]]) -> dict[Node, list[Node]]:
    found: dict[Node, list[Node]] = {}
    for a, b in edges:
        found.setdefault(a, []).append(b)
    return found


# --- rows ---------------------------------------------------------------------------------------


def _ordered(columns: list[list[Node]], flow: Flow) -> list[list[Node]]:
    """Each node near the middle of its neighbours: forth and back, a few times."""
    joined = _neighbours([*flow.edges, *((b, a) for a, b in flow.edges)])
    for sweep in range(SWEEPS):
        numbers = range(len(columns)) if sweep % 2 == 0 else reversed(range(len(columns)))
        for number in numbers:
            ranks = _ranks(columns)
            columns[number].sort(key=lambda node: _middle(node, joined, ranks))
    return columns


def _ranks(columns: Sequence[Sequence[Node]]) -> dict[Node, float]:
    """From 0 to 1, whatever the length of the column."""
    return {
        node: (place + 0.5) / len(column) for column in columns for place, node in enumerate(column)
    }


def _middle(
    node: Node, joined: Mapping[Node, Sequence[Node]], ranks: Mapping[Node, float]
) -> float:
    others = joined.get(node)
    return sum(ranks[one] for one in others) / len(others) if others else ranks[node]


# --- places -------------------------------------------------------------------------------------


def _column_height(column: Sequence[Node]) -> float:
    return len(column) * (BOX_HEIGHT + ROW_GAP) - ROW_GAP


def _width(column: Sequence[Node]) -> float:
    letters = max(len(node.name) for node in column)
    wanted = NAME_INDENT + NAME_LETTER * letters + NAME_MARGIN
    return min(BOX_WIDTH_MAX, max(BOX_WIDTH_MIN, round(wanted)))


def _boxes(column: Sequence[Node], height: float, *, x: float, width: float) -> list[Box]:
    top = (height - _column_height(column)) / 2
    return [
        Box(node=node, x=x, y=top + row * (BOX_HEIGHT + ROW_GAP), width=width)
        for row, node in enumerate(column)
    ]


def _link(source: Box, target: Box) -> Link:
    x1, y1 = source.x + source.width, source.y + BOX_HEIGHT / 2
    x2, y2 = target.x, target.y + BOX_HEIGHT / 2
    bend = max(COLUMN_GAP / 2, (x2 - x1) / 2)
    points = [(x1, y1), (x1 + bend, y1), (x2 - bend, y2), (x2, y2)]
    start, *curve = [f"{x:.0f} {y:.0f}" for x, y in points]
    path = f"M{start} C{' '.join(curve)}"
    return Link(source=source.node, target=target.node, path=path)
