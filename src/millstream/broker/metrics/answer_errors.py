"""Which error codes an answer carries, wherever in it: of topics, partitions, members.

Pure. For each class of answers a function is made from its fields, once: a loop for each list on
the way to an error code, and nothing for what has none.

    def errors_in(answer):
        found = []
        for a in answer.responses or ():
            for b in a.partition_responses or ():
                if b.error_code: found.append(b.error_code)
        return found
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from millstream.broker.wire import Message

ErrorsOf: TypeAlias = Callable[[Any], list[int]]

_functions: dict[type[Message], ErrorsOf] = {}


def errors_in(answer: Message) -> list[int]:
    """Every error code that is not 0, as often as it is there."""
    kind = type(answer)
    function = _functions.get(kind)
    if function is None:
        function = _functions[kind] = _compile(kind)
    return function(answer)


def _compile(kind: type[Message]) -> ErrorsOf:
    lines = ["def errors_in(answer):", " found = []", *_lines(kind, "answer", 1), " return found"]
    names: dict[str, ErrorsOf] = {}
    exec("\n".join(lines), names)  # the names of fields come from our own message files
    return names["errors_in"]


def _lines(kind: type[Message], value: str, depth: int) -> Iterator[str]:
    indent = " " * depth
    for item in kind.__schema__.fields:
        path = f"{value}.{item.name}"
        if item.name.endswith("error_code"):
            yield f"{indent}if {path}: found.append({path})"
        elif isinstance(item.kind, type):
            inner = f"value_{depth}"
            if body := list(_lines(item.kind, inner, depth + 1)):
                values = f"{path} or ()" if item.is_array else f"({path},) if {path} else ()"
                yield f"{indent}for {inner} in {values}:"
                yield from body
