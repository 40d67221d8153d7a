"""Cycles of dependencies between transactions (Adya's G0 and G1c). Pure.

One transaction depends on another if it read what that one wrote (wr), or wrote to a partition
right behind it (ww). With committed reads no cycle can be of wr alone: it would mean that each
read the other before it was committed. ww orders nothing in Kafka, which isolates reads and not
writes, so cycles with ww are counted and allowed.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from tests.faults.consistency.anomaly import Anomaly, Finding
from tests.faults.consistency.facts import Facts
from tests.faults.consistency.history import Isolation, Kind, Operation

Name: TypeAlias = str
Graph: TypeAlias = Mapping[Name, set[Name]]


def cycles(facts: Facts) -> Iterator[Finding]:
    named = {one.name: one for one in facts.transactions if facts.is_committed(one)}
    read, written = read_dependencies(facts, named), write_dependencies(facts, named)
    both = {name: read.get(name, set()) | written.get(name, set()) for name in named}
    yield from _findings(Anomaly.G1C, read, named)
    yield from _findings(Anomaly.G0, written, named)
    for finding in _findings(Anomaly.G1C_BY_WRITE_ORDER, both, named):
        path = [one.name for one in finding.operations]
        if any(later in read.get(one, ()) for one, later in pairwise([*path, path[0]])):
            yield finding


def read_dependencies(facts: Facts, named: Mapping[Name, Operation]) -> Graph:
    """From each transaction to those that read what it wrote."""
    graph: dict[Name, set[Name]] = defaultdict(set)
    for name, reader in named.items():
        for read in reader.polls:
            sent = facts.sent.get(read.value)
            if sent is not None and sent.operation.name in named and sent.operation.name != name:
                graph[sent.operation.name].add(name)
    return graph


def write_dependencies(facts: Facts, named: Mapping[Name, Operation]) -> Graph:
    """From each transaction to those that wrote the next record to a partition."""
    graph: dict[Name, set[Name]] = defaultdict(set)
    for values in facts.final[Isolation.COMMITTED].values():
        writers = [
            facts.sent[values[at]].operation for at in sorted(values) if _is_sent(facts, values[at])
        ]
        names = [one.name for one in writers if one.kind is Kind.TRANSACTION and one.name in named]
        for one, later in pairwise(names):
            if one != later:
                graph[one].add(later)
    return graph


def _is_sent(facts: Facts, value: str) -> bool:
    return value in facts.sent


def _findings(anomaly: Anomaly, graph: Graph, named: Mapping[Name, Operation]) -> Iterator[Finding]:
    """One finding for each set of transactions that all depend on one another."""
    for component in components(graph):
        path = shortest_cycle(graph, component)
        yield Finding(anomaly, " -> ".join([*path, path[0]]), [named[name] for name in path])


def components(graph: Graph) -> Iterator[set[Name]]:
    """Strongly connected components of more than one node (Tarjan's, without recursion)."""
    index: dict[Name, int] = {}
    low: dict[Name, int] = {}
    stack: list[Name] = []
    on_stack: set[Name] = set()
    for root in list(graph):
        if root in index:
            continue
        work = [(root, iter(graph.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, neighbours = work[-1]
            for neighbour in neighbours:
                if neighbour not in index:
                    index[neighbour] = low[neighbour] = len(index)
                    stack.append(neighbour)
                    on_stack.add(neighbour)
                    work.append((neighbour, iter(graph.get(neighbour, ()))))
                    break
                if neighbour in on_stack:
                    low[node] = min(low[node], index[neighbour])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = set(_pop_until(stack, node))
                    on_stack -= component
                    if len(component) > 1:
                        yield component


def _pop_until(stack: list[Name], node: Name) -> Iterator[Name]:
    while True:
        popped = stack.pop()
        yield popped
        if popped == node:
            return


def shortest_cycle(graph: Graph, component: set[Name]) -> list[Name]:
    """The shortest way from the first of a component back to itself."""
    start = min(component)
    came_from: dict[Name, Name] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for neighbour in sorted(graph.get(node, set()) & component):
            if neighbour == start:
                return _path(came_from, start, node)
            if neighbour not in came_from:
                came_from[neighbour] = node
                queue.append(neighbour)
    raise AssertionError(f"{start} is in no cycle: {sorted(component)}")


def _path(came_from: Mapping[Name, Name], start: Name, end: Name) -> list[Name]:
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]
