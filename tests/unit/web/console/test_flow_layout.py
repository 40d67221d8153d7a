"""Where the nodes of a flow are drawn."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from millstream.web.console.facts import Flow, Node
from millstream.web.console.flow_layout import (
    BOX_HEIGHT,
    BOX_WIDTH_MIN,
    NAME_LETTERS_MAX,
    NODES_MAX,
    Picture,
    picture_of,
)


def flow(*edges: tuple[Node, Node], alone: tuple[Node, ...] = ()) -> Flow:
    nodes = dict.fromkeys([*alone, *(node for edge in edges for node in edge)])
    return Flow(nodes=tuple(nodes), edges=edges)


def drawn(found: Flow) -> Picture:
    picture = picture_of(found)
    assert picture is not None
    return picture


def xs(picture: Picture) -> dict[Node, float]:
    return {box.node: box.x for box in picture.boxes}


CAPTURE, ORDERS = Node("capture", "shop"), Node("topic", "orders")
CLICKS, JOB, VIEW = Node("topic", "clicks"), Node("job", "sales"), Node("view", "sales")


def test_what_feeds_stands_left_of_what_it_feeds() -> None:
    at = xs(drawn(flow((CAPTURE, ORDERS), (ORDERS, JOB), (CLICKS, JOB), (JOB, VIEW))))
    assert at[CAPTURE] < at[ORDERS] < at[JOB] < at[VIEW]
    assert at[CLICKS] == at[ORDERS]


def test_without_captures_topics_come_first() -> None:
    at = xs(drawn(flow((CLICKS, JOB), (JOB, VIEW))))
    assert at[CLICKS] == min(at.values())


def test_what_nothing_is_joined_to_is_drawn_too() -> None:
    assert {box.node for box in drawn(flow(alone=(CLICKS,))).boxes} == {CLICKS}


def test_a_job_that_reads_what_it_writes_ends_no_page() -> None:
    picture = drawn(flow((CLICKS, JOB), (JOB, CLICKS)))
    assert len(picture.links) == 2


def test_nothing_and_too_much_are_not_drawn() -> None:
    assert picture_of(flow()) is None
    many = tuple(Node("topic", f"{number}") for number in range(NODES_MAX + 1))
    assert picture_of(flow(alone=many)) is None
    assert picture_of(flow(alone=many[:NODES_MAX])) is not None


def test_a_box_has_room_for_its_whole_name_within_reason() -> None:
    short, long = Node("job", "a"), Node("job", "b" * NAME_LETTERS_MAX)
    too_long = Node("job", "c" * (NAME_LETTERS_MAX + 1))
    assert drawn(flow(alone=(short,))).boxes[0].width == BOX_WIDTH_MIN
    [one] = drawn(flow(alone=(long,))).boxes
    assert one.label == long.name
    assert one.width > BOX_WIDTH_MIN
    [other] = drawn(flow(alone=(too_long,))).boxes
    assert other.label == "c" * (NAME_LETTERS_MAX - 1) + "…"


NODES = [Node("job", f"{number}") for number in range(12)]


@given(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=30))
def test_no_box_lies_on_another_and_none_outside(edges: list[tuple[Node, Node]]) -> None:
    picture = drawn(flow(*edges, alone=(NODES[0],)))
    for one, other in combinations(picture.boxes, 2):
        assert abs(one.x - other.x) >= one.width or abs(one.y - other.y) >= BOX_HEIGHT
    for box in picture.boxes:
        assert 0 <= box.x <= picture.width - box.width
        assert 0 <= box.y <= picture.height - BOX_HEIGHT
    assert len(picture.links) == len(edges)
