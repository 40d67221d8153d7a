from millstream.web.connections import Connections, Place
from millstream.web.limits import CONNECTIONS_MIN, FILES_KEPT_MIN, connections_for


def entered(connections: Connections, host: str, ended: list[str]) -> Place:
    place = connections.enter(host)
    assert place is not None
    name = f"{host}#{len(connections)}"
    place.end = lambda: ended.append(name)
    return place


def test_the_last_place_is_given_and_one_more_ends_the_oldest_that_waits() -> None:
    connections, ended = Connections(3, 3), list[str]()
    for host in ("a", "b", "c"):
        entered(connections, host, ended)
    assert ended == []
    entered(connections, "d", ended)
    assert ended == ["a#1"]
    assert len(connections) == 3


def test_an_address_at_its_bound_ends_its_own_oldest() -> None:
    connections, ended = Connections(10, 2), list[str]()
    for host in ("other", "greedy", "greedy", "greedy"):
        entered(connections, host, ended)
    assert ended == ["greedy#2"]


def test_what_is_answered_stays_and_whoever_comes_then_is_refused() -> None:
    connections, ended = Connections(2, 2), list[str]()
    first, second = (entered(connections, "a", ended) for _ in range(2))
    first.start()
    second.start()
    assert connections.enter("b") is None
    first.rest()
    assert connections.enter("b") is not None
    assert ended == ["a#1"]


def test_an_answer_puts_a_connection_behind_those_that_wait_already() -> None:
    connections, ended = Connections(2, 2), list[str]()
    first = entered(connections, "a", ended)
    entered(connections, "a", ended)
    first.start()
    first.rest()
    entered(connections, "a", ended)
    assert ended == ["a#2"]


def test_a_place_that_is_left_is_free_once() -> None:
    connections = Connections(1, 1)
    place = connections.enter("a")
    assert place is not None
    place.leave()
    place.leave()
    place.rest()  # an answer that ends after its connection was lost
    assert len(connections) == 0
    assert connections.enter("a") is not None


def test_connections_leave_files_to_the_application() -> None:
    assert connections_for(4_096, 1_048_576) == 4_096
    assert connections_for(4_096, 1_024) == 768
    assert connections_for(4_096, 192) == 192 - FILES_KEPT_MIN
    assert connections_for(4_096, 20) == CONNECTIONS_MIN
