"""The code of docs/guides/event_sourcing.md as it stands there, and the programs beside it.

What needs Spark in it is run by tests/spark/test_event_views.py.
"""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millstream import App
from tests.clients.steps import unique_name

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "event_sourcing.md"


def code_of_the_guide(*, with_spark: bool) -> str:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(one for one in blocks if with_spark or "pyspark" not in one)
    assert 'ms.App("bank")' in code
    return code.replace('ms.App("bank")', f'ms.App("{unique_name("bank")}")')


def test_the_code_of_the_guide_does_what_it_says(
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    exec(code_of_the_guide(with_spark=False), space)
    said = capsys.readouterr().out
    assert "it was that of another command already, with other arguments" in said
    assert "is at version 3, and 2 was expected" in said
    assert "Withdrawn(amount=20) ada ticket 4711" in said


def test_the_account_of_the_readme_runs_as_it_stands(
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    [code] = [block for block in blocks if "class Account" in block]
    exec(code.replace('"bank"', f'"{unique_name("bank")}"'), {"__name__": "__main__"})
    assert capsys.readouterr().out == "70 100\n"


def test_the_bank_account_ends_as_it_says(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with App(unique_name("bank"), brokers=bootstrap, data=tmp_path / "bank") as app:
        account = example("bank_account").main(app, "alice")
    assert (account.owner, account.balance) == ("Alice", 90)
    said = capsys.readouterr().out
    assert "10 of 25 got 10 each, and 0 is left" in said
    assert "(does not count: it was 90)" in said
    assert "once: 100, now: 90" in said


def test_the_shopping_cart_knows_what_was_nearly_bought(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with App(unique_name("shop"), brokers=bootstrap, data=tmp_path / "shop") as app:
        found = example("shopping_cart").main(app)
    assert found == {"pot": 6}
    assert "in the table: {'tea': 4}" in capsys.readouterr().out


def example(name: str) -> ModuleType:
    """examples/ is no package: its programs are started by their path."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
