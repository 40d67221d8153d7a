"""A program of examples/, run as `python examples/x.py` would, and what it says that it prints."""

import contextlib
import io
import re
import runpy
from pathlib import Path
from textwrap import dedent

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTS = re.compile(r"\bprints\n\n((?:    .*\n|\n)+)")


def promised(name: str) -> str:
    """The indented lines of the docstring after `prints`."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    found = PRINTS.search(text.split('"""')[1])
    assert found, f"examples/{name}.py does not say what it prints"
    return dedent(found[1]).rstrip() + "\n"


def printed(name: str) -> str:
    """What it prints when it is run here; the blanks at the ends of lines are left out."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return "".join(f"{line.rstrip()}\n" for line in said.getvalue().splitlines())
