"""docs/guides/http_api.md: its application is served, and its commands do what it says."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import Broker
from millstream.schemas.declaration import schema_of
from tests.support.serve_process import WITHIN_S, ServeProcess
from tests.support.web_application import KeptView

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "http_api.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
SERVE = "millstream serve shop.py"
URL = "http://127.0.0.1:8080"


def blocks(kind: str) -> list[str]:
    found = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    return [text for one, text in found if one == kind]


def commands() -> list[str]:
    lines = [line for text in blocks("console") for line in text.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServeProcess]:
    """The guide's application. Its view is there as its job would leave it, far ahead."""
    [code] = blocks("python")
    (tmp_path / "shop.py").write_text(code)
    views = tmp_path / "shop.millstream" / "views"
    views.mkdir(parents=True)
    view = KeptView(views, "clicks_per_url", schema_of("url STRING, count BIGINT"), ("url",))
    rows: list[dict[str, Any]] = [{"url": "/", "count": 2}, {"url": "/about", "count": 1}]
    view.write(rows, positions={"clicks": {0: 1_000_000}})
    with Broker() as broker:
        env = {"MILLSTREAM_BROKERS": broker.bootstrap}
        with ServeProcess(tmp_path / "shop.py", env=env) as server:
            yield server
    view.close()


@pytest.mark.full
@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide's client is curl")
def test_the_guide_does_what_it_says(server: ServeProcess, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    asked = commands()[commands().index(SERVE) + 1 :]
    said = run(asked, server.url, tmp_path, os.environ | {"PATH": path})
    answers = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [one for one in answers if "detail" in one] == []
    assert answers[0]["status"] == "ready"
    one, several, keyed, again = answers[1:5]
    assert [len(found["receipts"]) for found in (one, several, keyed)] == [1, 2, 1]
    assert keyed == again
    view, about, many, page, own, changes = answers[5:]
    assert view["key"] == ["url"]
    assert about == {"url": "/about", "count": 1}
    assert [row["url"] for row in many["rows"]] == ["/"]
    assert page["more"] is True
    assert own["url"] == "/"
    assert changes["results"] == []
    assert (tmp_path / "certificates" / "server.pem").exists()


def run(lines: list[str], url: str, folder: Path, env: dict[str, str]) -> str:
    """As one script, so that a variable lasts; each answer on a line of its own."""
    script = "\n".join(f"{line.replace(URL, url)}\necho" for line in lines)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
