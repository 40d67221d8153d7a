"""Imports point one way, pure folders stay pure, and every file has a name that says something."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "millstream"
FILES = sorted(SOURCE.rglob("*.py"))

# From the bottom to the top. A part imports from lower lines only: parts on one line do not
# know one another.
LAYERS = [
    {"_version"},
    {"base"},
    {"archive", "log", "schemas"},
    {"values"},
    {"broker", "capture", "direct", "eventsourcing", "processing", "sinks", "views"},
    {"queues", "stores"},
    {"web"},
    {"setting_kinds"},
    {"passwords", "settings"},
    {"telemetry"},
    {"capture_processes", "client_protection", "declarations", "declared_views"}
    | {"broker_start", "publishing", "running"},
    {"captures", "embedded", "forgetting", "jobs"},
    {"aggregates"},
    {"hosting"},
    {"app"},
    {"demo", "doctor"},
    {"commands"},
    {"cli", "testing", "__init__"},
    {"cli_docs", "__main__"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
NAMELESS = {"utils", "util", "common", "helpers", "helper", "core", "misc"}
# Values in, values out.
PURE = {
    "broker/wire": {"asyncio", "socket", "select", "threading", "time", "os", "random"},
    "broker/streams": {"asyncio", "socket", "select", "threading", "time", "os", "random"},
    "broker/groups": {"asyncio", "socket", "select", "threading", "time", "os", "random"},
    "log": {"asyncio", "socket", "threading"},
}
# Files of a folder that has both: the same holds for them.
PURE_FILES = {
    "capture": (
        "approval",
        "change",
        "definition",
        "envelope",
        "outbox",
        "position_record",
        "recorded_change",
        "status",
    ),
    "capture/load": ("course", "plan", "progress", "table_course", "window"),
    "eventsourcing": (
        "acting",
        "aggregate",
        "aggregate_plan",
        "chain_walk",
        "command_arguments",
        "command_calls",
        "command_topic",
        "declared_event",
        "event_index",
        "event_types",
        "fold_print",
        "history",
        "key_book",
        "partition_state",
        "personal",
        "placement",
        "query",
        "reaction",
        "reading_plan",
        "recorded",
        "replay",
        "sealed_commands",
        "sealed_events",
        "sealing",
        "snapshot_record",
        "staging",
        "stored_event",
        "upcasting",
    ),
    "queues": (
        "access",
        "acknowledgements",
        "deliveries",
        "held_jobs",
        "leader_session",
        "letters",
        "login",
        "membership",
        "values",
    ),
    "web/console": ("condition", "facts", "figures", "flow_layout", "record_text", "series"),
}
IMPURE = {"asyncio", "socket", "select", "threading", "time", "random", "confluent_kafka"}


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def part_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(file: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it, as a dotted name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(file)}: imports are absolute here"
            module = node.module or ""
            if module == "millstream":  # a part, or a name of the package itself
                yield from (f"millstream.{alias.name}" for alias in node.names)
            else:
                yield module


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_point_down(file: Path) -> None:
    part = part_of(file)
    assert part in LEVEL, f"{part} has no layer yet: give it one here, and in ARCHITECTURE.md"
    for module in imports_of(file):
        package, _, rest = module.partition(".")
        imported = rest.partition(".")[0]
        if package == "millstream" and imported in LEVEL and imported != part:
            assert LEVEL[imported] < LEVEL[part], f"{part} imports {module}"


def test_spark_is_imported_where_it_belongs() -> None:
    users = {
        part_of(file) for file in FILES if "pyspark" in {m.split(".")[0] for m in imports_of(file)}
    }
    assert users <= {"processing", "demo"}  # a demo is an application


@pytest.mark.parametrize("folder", PURE)
def test_a_pure_folder_asks_nobody(folder: str) -> None:
    for file in (SOURCE / folder).rglob("*.py"):
        impure = {module.split(".")[0] for module in imports_of(file)} & PURE[folder]
        assert not impure, f"{name_of(file)} imports {impure}"


@pytest.mark.parametrize("folder", PURE_FILES)
def test_a_pure_file_beside_its_shell_asks_nobody(folder: str) -> None:
    for name in PURE_FILES[folder]:
        impure = {
            module.split(".")[0] for module in imports_of(SOURCE / folder / f"{name}.py")
        } & IMPURE
        assert not impure, f"{folder}/{name}.py imports {impure}"


def test_every_file_and_folder_has_a_name_that_says_what_it_is() -> None:
    names = {name for file in FILES for name in Path(name_of(file)).with_suffix("").parts}
    assert not names & NAMELESS
