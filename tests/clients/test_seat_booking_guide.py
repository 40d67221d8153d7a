"""The code of docs/guides/seat_booking.md as it stands there, and the program beside it."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millstream import App
from tests.clients.steps import unique_name

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "seat_booking.md"


def test_the_code_of_the_guide_does_what_it_says(
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(blocks).replace('ms.App("booking")', f'ms.App("{unique_name("booking")}")')
    space: dict[str, Any] = {}
    try:
        exec(code, space)
    finally:
        if "app" in space:
            space["app"].close()
    said = ["1", "it is held for cid", "b-3 SeatReleased", "b-4 SeatBooked", "70"]
    assert capsys.readouterr().out.splitlines() == said


def test_one_of_fifty_attempts_is_paid_for(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with App(unique_name("booking"), brokers=bootstrap, data=tmp_path / "booking") as app:
        assert example("seat_booking").main(app) == "ada"
    said = capsys.readouterr().out
    assert "bob holds seat 7a, and his wallet is asked: SeatReleased" in said
    assert "1 of 50 attempts holds it" in said
    assert "ada pays: SeatBooked, and has 70 left" in said


def example(name: str) -> ModuleType:
    """examples/ is no package: its programs are started by their path."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
