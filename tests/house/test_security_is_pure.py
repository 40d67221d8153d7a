"""Of `broker/security`, only what handles certificate files asks the system for anything."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "src" / "millstream" / "broker" / "security"
WITH_FILES = {"certificates", "tls"}
ASKS = {"asyncio", "socket", "select", "threading", "time", "os", "random", "secrets", "pathlib"}
PURE = sorted(file for file in FOLDER.glob("*.py") if file.stem not in WITH_FILES)


@pytest.mark.parametrize("file", PURE, ids=lambda file: file.stem)
def test_it_is_values_in_and_values_out(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in imported} & ASKS
