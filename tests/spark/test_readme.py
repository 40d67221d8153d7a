"""The job on the first page runs as it is printed there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
WITHIN_S = 300


@pytest.mark.full
@pytest.mark.timeout(WITHIN_S + 60)
def test_the_view_of_the_readme_shows_its_click(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    [program] = [block for block in blocks if "def clicks_a_minute" in block]
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env=os.environ | {"MILLSTREAM_SPARK_QUICK_START": "true"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "'url': '/', 'count': 1}]" in done.stdout
