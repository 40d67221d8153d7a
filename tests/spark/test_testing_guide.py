"""The code of docs/guides/testing.md, as it stands there."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from millstream.processing.steps.stage import Stage

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
SHOP, TESTS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("name", re.findall(r"def (test_\w+)", TESTS))
def test_the_tests_of_the_guide_pass(
    name: str, millstream_steps: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ModuleType("shop")
    exec(SHOP, shop.__dict__)
    monkeypatch.setitem(sys.modules, "shop", shop)
    tests: dict[str, object] = {}
    exec(TESTS, tests)
    tests[name](millstream_steps)  # type: ignore[operator]
