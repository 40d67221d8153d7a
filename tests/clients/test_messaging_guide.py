"""The code of docs/guides/messaging.md as it stands there, and the programs that it quotes."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import head_of_line

from millstream import App
from tests.clients.steps import unique_name

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "messaging.md"
README = ROOT / "README.md"


def test_the_code_of_the_guide_does_what_it_says(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(blocks)
    for name in ("mails", "billing", "statistics"):
        assert f'"{name}"' in code
        code = code.replace(f'"{name}"', f'"{unique_name(name)}"')
    space: dict[str, Any] = {}
    exec(code, space)
    space["app"].close()
    assert space["sent"] == ["ada@example.org", "grace@example.org"]
    assert [*space["seen"].values()] == [3, 3]
    assert len(space["put_back"]) == 1
    said = capsys.readouterr().out
    assert "not an address 1" in said
    assert "['not an address']" in said


def test_the_queue_of_the_readme_runs_as_it_stands(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    [code] = [block for block in blocks if "app.queue" in block]
    assert "timeout=5" in code
    exec(code.replace('"mails"', f'"{unique_name("mails")}"').replace("timeout=5", "timeout=1"), {})
    assert capsys.readouterr().out == "sent to ada@example.org\n"


def test_the_example_of_order_ends_as_the_guide_says(bootstrap: str) -> None:
    balanced, single, keyed = example_main()(bootstrap, suffix=unique_name("-")).values()
    assert sorted(balanced.wrong()) == ["ada", "edsger", "grace"]
    assert single.wrong() == keyed.wrong() == []


def example_main() -> Callable[..., dict[str, Any]]:
    """examples/ is no package: its programs are started by their path."""
    spec = importlib.util.spec_from_file_location("ordering", ROOT / "examples" / "ordering.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Callable[..., dict[str, Any]] = module.main
    return main


def test_a_slow_record_holds_up_a_group_and_not_a_queue(bootstrap: str) -> None:
    load = head_of_line.Load(slow_seconds=1.0, quick=5)
    with App("bench", brokers=bootstrap) as app:
        group, queue = head_of_line.measure(app, load, suffix=unique_name("hol"))
    assert group > load.slow_seconds
    assert queue < group
