"""The OpenAPI 3.1 document of an application, made of the table of operations. Pure.

A path for each topic, view and captured table, with the columns of its rows and keys. A view that
is not there yet has rows of any shape.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millstream._version import __version__
from millstream.base.schema import ListOf, MapOf, Schema, Struct
from millstream.web.json_schema import of_type, raw_written, row_read, row_written
from millstream.web.limits import Limits
from millstream.web.operations import OPERATIONS, Operation, Parameter
from millstream.web.ports import Declared
from millstream.web.problems import KINDS, PROBLEM_JSON
from millstream.web.view_facts import ViewColumns

# What every request may be answered, beside the problems of its path.
EVERYWHERE = ("bad-request", "foreign-page", "url-too-long", "too-many", "try-again")
ANY_ROW = {"type": "object"}
POSITIONS = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
}
PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "what_to_do": {"type": "string"},
        "id": {"type": "string", "description": "Of the line in the server's log that says more"},
    },
    "required": ["type", "title", "status", "detail", "what_to_do"],
}


def document(
    name: str,
    topics: Mapping[str, Declared],
    views: Mapping[str, ViewColumns | None],
    tables: Sequence[str] = (),
    *,
    limits: Limits,
) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        for path, described in _described(operation, topics, views, tables, limits):
            paths.setdefault(path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(
    operation: Operation,
    topics: Mapping[str, Declared],
    views: Mapping[str, ViewColumns | None],
    tables: Sequence[str],
    limits: Limits,
) -> Iterator[tuple[str, dict[str, Any]]]:
    if "{topic}" in operation.path:
        for topic, declared in topics.items():
            row = _written(declared)
            yield _with(operation, "topic", topic), _operation(operation, topic, row, limits)
    elif "{view}" in operation.path:
        for view, columns in views.items():
            row = ANY_ROW if columns is None else row_read(columns.schema)
            found = _operation(operation, view, row, limits)
            yield _by_columns(_with(operation, "view", view), found, columns)
    elif "{table}" in operation.path:
        for table in tables:
            found = _operation(operation, table, ANY_ROW, limits)
            yield _with(operation, "table", table), found
    else:
        yield operation.path, _operation(operation, "", ANY_ROW, limits)


def _with(operation: Operation, what: str, name: str) -> str:
    return operation.path.replace(f"{{{what}}}", name)


def _by_columns(
    path: str, described: dict[str, Any], columns: ViewColumns | None
) -> tuple[str, dict[str, Any]]:
    """A key in the path is one part for each of its columns."""
    if "{key}" not in path or columns is None:
        return path, described
    parts = [_key_parameter(columns.schema, name) for name in columns.key]
    others = [one for one in described["parameters"] if one["in"] != "path"]
    names = "/".join(f"{{{name}}}" for name in columns.key)
    return path.replace("{key}", names), described | {"parameters": [*parts, *others]}


def _key_parameter(schema: Schema, name: str) -> dict[str, Any]:
    found = {"name": name, "in": "path", "required": True, "description": "A slash is %2F."}
    kind = schema.field(name)
    of_kind = {"type": "string"} if kind is None else of_type(kind.type)
    if kind is not None and isinstance(kind.type, ListOf | MapOf | Struct):
        return found | {"content": {"application/json": {"schema": of_kind}}}
    return found | {"schema": of_kind}


def _written(declared: Declared) -> dict[str, Any]:
    if declared.schema is None:
        return raw_written()
    return row_written(declared.schema, declared.key)


def _operation(
    operation: Operation, name: str, row: dict[str, Any], limits: Limits
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{operation.name}_{name}" if name else operation.name,
        "summary": operation.summary,
        "parameters": [_parameter(one, limits) for one in operation.parameters],
        "responses": _responses(operation, row),
    }
    if operation.takes_rows:
        found["requestBody"] = _body(row, limits)
    if operation.needs_token:
        found["security"] = [{"token": []}, {}]  # none on loopback
    return found


def _body(row: dict[str, Any], limits: Limits) -> dict[str, Any]:
    several = {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": row, "minItems": 1, "maxItems": limits.rows_max}
        },
        "required": ["rows"],
        "additionalProperties": False,
    }
    return {
        "required": True,
        "content": {"application/json": {"schema": {"anyOf": [row, several]}}},
    }


def _parameter(parameter: Parameter, limits: Limits) -> dict[str, Any]:
    schema = dict(parameter.schema)
    if parameter.at_most:
        schema["maximum"] = getattr(limits, parameter.at_most)
    if parameter.at_most_ms:
        schema["maximum"] = getattr(limits, parameter.at_most_ms) / 1000
    found = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.help,
        "required": parameter.place == "path",
    }
    if parameter.is_json:
        return found | {"content": {"application/json": {"schema": schema}}}
    return found | {"schema": schema}


# --- answers ----------------------------------------------------------------------------------


def _responses(operation: Operation, row: dict[str, Any]) -> dict[str, Any]:
    found = {f"{operation.status}": _answer(operation, row)}
    words = (*EVERYWHERE, *(("no-token",) if operation.needs_token else ()), *operation.problems)
    for status in sorted({KINDS[word].status for word in words}):
        titles = [KINDS[word].title for word in words if KINDS[word].status == status]
        found[f"{status}"] = {
            "description": "; ".join(titles),
            "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    for status, shape in operation.also.items():
        content = found.get(f"{status}", {}).get("content", {})
        told = {"application/json": {"schema": _schema(shape, row)}}
        found[f"{status}"] = {
            "description": "As above, of what is wrong",
            "content": content | told,
        }
    return found


def _answer(operation: Operation, row: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media in operation.media:
        is_json = media == "application/json" and operation.shape is not None
        schema = _schema(operation.shape or "", row) if is_json else {"type": "string"}
        content[media] = {"schema": schema}
    return {"description": operation.summary, "content": content}


def _schema(shape: str, row: dict[str, Any]) -> dict[str, Any]:
    return row if shape == "row" else SHAPES.get(shape) or _of_rows(shape, row)


def _of_rows(shape: str, row: dict[str, Any]) -> dict[str, Any]:
    row_or_null = {"anyOf": [row, {"type": "null"}]}
    if shape == "rows":
        return _object(rows=_array(row_or_null), next=_nullable("string"), more={"type": "boolean"})
    change = _object(
        kind={"enum": ["row", "current", "upsert", "delete", "reset"]},
        key=_nullable("object"),
        row=row_or_null,
        version=_nullable("integer"),
        token=_nullable("string"),
    )
    return _object(results=_array(change), last=_nullable("string"))


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def _nullable(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


TEXT = {"type": "string"}
COLUMNS = _array(_object(name=TEXT, type=TEXT, nullable={"type": "boolean"}))
SHAPES: Mapping[str, dict[str, Any]] = {
    "document": {"type": "object"},
    "live": _object(status={"const": "live"}),
    "health": _object(
        status={"enum": ["ready", "not ready"]},
        broker=TEXT,
        views={"type": "object", "additionalProperties": TEXT},
    ),
    "topics": _object(
        topics=_array(
            _object(
                name=TEXT,
                is_table={"type": "boolean"},
                key=_array(TEXT),
                encoding=TEXT,
                columns={"anyOf": [COLUMNS, {"type": "null"}]},
            )
        )
    ),
    "receipts": _object(
        receipts=_array(
            _object(topic=TEXT, partition={"type": "integer"}, offset={"type": "integer"})
        ),
        after=TEXT,
    ),
    "views": _object(views=_array(TEXT)),
    "tables": _object(tables=_array(TEXT)),
    "table_changes": _object(
        results=_array(
            _object(
                table=TEXT,
                op={"enum": ["c", "u", "d", "r", "t"]},
                key=_nullable("object"),
                before=_nullable("object"),
                after=_nullable("object"),
                commit=_nullable("string"),
                seq=_nullable("integer"),
                transaction=_nullable("string"),
                at_ms=_nullable("integer"),
                unavailable=_array(TEXT),
                token=TEXT,
            )
        ),
        last=_nullable("string"),
    ),
    "view": _object(
        name=TEXT,
        key=_array(TEXT),
        columns=COLUMNS,
        position=POSITIONS,
        generations=_array(
            _object(
                number={"type": "integer"},
                is_served={"type": "boolean"},
                batch=_nullable("integer"),
                position=POSITIONS,
            )
        ),
    ),
}
