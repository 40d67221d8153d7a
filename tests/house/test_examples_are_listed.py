"""Every program of examples/ is in its list, small, says what it prints, and is run by a test."""

import ast
import re
import sys
from pathlib import Path

import pytest
from tests.support.example_runs import promised

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LIST = (EXAMPLES / "README.md").read_text(encoding="utf-8")
# Those that are run in ways of their own: longer ones, with a guide or a test for each.
SHOWN_OTHERWISE = {
    "bank_account",
    "clicks",
    "in_sync",
    "log_demo",
    "log_demo_queue",
    "ordering",
    "seat_booking",
    "shopping_cart",
}
SMALL = sorted(path for path in EXAMPLES.glob("*.py") if path.stem not in SHOWN_OTHERWISE)
LINES_MAX = 75


@pytest.mark.parametrize("example", SMALL, ids=lambda path: path.stem)
def test_an_example_is_listed_once(example: Path) -> None:
    assert LIST.count(f"]({example.name})") == 1


@pytest.mark.parametrize("example", SMALL, ids=lambda path: path.stem)
def test_an_example_is_small_and_says_how_it_is_run(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert f"    python examples/{example.name}\n" in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("example", SMALL, ids=lambda path: path.stem)
def test_an_example_is_run_by_a_test(example: Path) -> None:
    tests = [ROOT / "tests" / folder / "test_examples.py" for folder in ("clients", "spark")]
    assert any(f'"{example.stem}"' in test.read_text(encoding="utf-8") for test in tests)


def test_the_page_of_code_in_the_readme_is_the_example() -> None:
    code = (EXAMPLES / "one_page.py").read_text(encoding="utf-8").split('"""', 2)[2].lstrip()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in readme
    assert f"```\n{promised('one_page')}```" in readme


def test_no_example_hides_a_module_of_python() -> None:
    """A directory with an `encodings.py` on its path keeps Python from starting."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} & sys.stdlib_module_names == set()


def test_everything_that_is_listed_is_there() -> None:
    listed = re.findall(r"\]\((\w+\.py)\)", LIST)
    assert [name for name in listed if not (EXAMPLES / name).exists()] == []
