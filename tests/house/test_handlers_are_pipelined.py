"""Every API that may answer later is tried among requests that its client sends without waiting."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.properties.pipelined_steps import NOT_IN_THE_MIX, TURNS_BY_API

import millstream.broker.apis
from millstream.broker.wire import ApiKey

FILES = sorted(Path(millstream.broker.apis.__path__[0]).glob("api_*.py"))
# What a handler returns that may answer later; `Answer` is Produce's word for it.
LATER = {"Later", "Coroutine", "Answer"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def handlers() -> Iterator[tuple[ApiKey, Function]]:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for decorator in node.decorator_list if isinstance(node, Function) else ():
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "handles":
                    assert isinstance(node, Function)
                    yield ApiKey[ast.unparse(decorator.args[0]).removeprefix("ApiKey.")], node


def may_answer_later(function: Function) -> bool:
    if isinstance(function, ast.AsyncFunctionDef):
        return True
    assert function.returns is not None
    words = {node.id for node in ast.walk(function.returns) if isinstance(node, ast.Name)}
    return bool(words & LATER)


def test_every_api_that_may_answer_later_is_in_the_mix_or_says_why_not() -> None:
    later = {api for api, function in handlers() if may_answer_later(function)}
    assert len(later) > 30, "handlers are found by their decorator"
    assert later - TURNS_BY_API.keys() == NOT_IN_THE_MIX.keys()
    assert all(NOT_IN_THE_MIX.values())
