"""docs/reference/http.md, made from the table of operations and that of problems.

python -m millstream.web.document > docs/reference/http.md
"""

from millstream.web.limits import Limits
from millstream.web.openapi import EVERYWHERE
from millstream.web.operations import OPERATIONS, Operation, Parameter
from millstream.web.problems import KINDS, TYPE_PREFIX

INTRODUCTION = """\
# HTTP

<!-- Generated: python -m millstream.web.document > docs/reference/http.md -->

What `millstream serve FILE` answers. [guides/http_api.md](../guides/http_api.md) shows how it is
used; `/openapi.json` of a running server describes *your* topics and views, with their columns.
`{topic}`, `{view}` and `{table}` are names of the application. Rows are JSON as in
[formats/values.md](../formats/values.md).
"""
EVERY_REQUEST = """\
Every request can also be answered by {words}. With a token every path but
`/health/live` wants `Authorization: Bearer TOKEN`, and answers `no-token` without.
"""
PROBLEMS = """\
## Problems

An error is `application/problem+json` (RFC 9457): `type` is `{prefix}` and the word below, `detail`
says what it is about, `what_to_do` what is next. Where it is worth asking again, there is a
`Retry-After`. Details name no path of the server; where there is more to know, the problem has an
`id`, and the server's log has it all in the line with that id. Every answer, problems among them,
has `Content-Security-Policy` with `frame-ancestors 'none'`, and `X-Content-Type-Options: nosniff`.

| word | status | what happened | what to do | ask again |
|---|---|---|---|---|
"""


def to_markdown() -> str:
    operations = [_operation_to_markdown(one) for one in OPERATIONS]
    everywhere = EVERY_REQUEST.format(words=", ".join(f"`{word}`" for word in EVERYWHERE))
    return "\n".join([INTRODUCTION, everywhere, *operations, _problems_to_markdown()])


def _operation_to_markdown(operation: Operation) -> str:
    lines = [f"## {operation.method} {operation.path}", "", operation.summary, ""]
    lines += _parameters_to_markdown(operation.parameters)
    if operation.takes_rows:
        lines += ['Takes: a row, or `{"rows": [...]}`, as `application/json`.', ""]
    statuses = [operation.status, *operation.also]
    media = " or ".join(f"`{one}`" for one in operation.media)
    lines.append(f"Answers: {' or '.join(map(str, statuses))}, {media}.")
    if operation.problems:
        lines.append(f"Problems: {', '.join(f'`{word}`' for word in operation.problems)}.")
    return "\n".join(lines) + "\n"


def _parameters_to_markdown(parameters: tuple[Parameter, ...]) -> list[str]:
    if not parameters:
        return []
    rows = [f"| `{one.name}` | {one.place} | {_in_cell(_meaning(one))} |" for one in parameters]
    return ["| parameter | in | meaning |", "|---|---|---|", *rows, ""]


def _meaning(parameter: Parameter) -> str:
    words = [parameter.help]
    if choices := parameter.schema.get("enum"):
        words.append(f"One of {', '.join(f'`{one}`' for one in choices)}.")
    if limit := parameter.at_most or parameter.at_most_ms:
        words.append(f"Bounded by the setting `{limit}` ({_default(limit)}).")
    return " ".join(words)


def _default(limit: str) -> str:
    value: int = getattr(Limits(), limit)
    return f"{value // 1000} s" if limit.endswith("_ms_max") else f"{value:,}"


def _problems_to_markdown() -> str:
    rows = [
        f"| `{kind.word}` | {kind.status} | {kind.title} | {_in_cell(kind.what_to_do)} | "
        f"{'yes' if kind.is_retryable else ''} |"
        for kind in KINDS.values()
    ]
    return PROBLEMS.format(prefix=TYPE_PREFIX) + "\n".join(rows) + "\n"


def _in_cell(text: str) -> str:
    """A bar would end the cell of a Markdown table, even in code."""
    return text.replace("|", r"\|")


if __name__ == "__main__":
    print(to_markdown(), end="")
