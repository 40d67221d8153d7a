"""With MILLSTREAM_LOG_FORMAT=json, each line that a command writes to stderr is a JSON object."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_attackers import ask, connections, get
from tests.support.serve_process import ServeProcess
from tests.support.waiting import eventually

ENV = {"MILLSTREAM_LOG_FORMAT": "json", "MILLSTREAM_BROKERS": "127.0.0.1:1"}
APP = """
import millstream

app = millstream.App("shop", data="data")
app.topic("clicks", schema="user STRING NOT NULL, url STRING", key="user")

@app.view(key="url")
def clicks_per_url(clicks):
    return clicks.groupBy("url").count()
"""


def lines_in(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert {"time", "level", "logger", "message"} <= set(one)
        assert set(one) <= {"time", "level", "logger", "message", "exception", "trace_id"}
        assert one["level"] in {"debug", "info", "warning", "error", "critical"}
    return found


def said_by(*command: str, folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *command],
        cwd=folder,
        env=os.environ | ENV,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    return lines_in(done.stderr)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP, encoding="utf-8")
    return file


def test_a_broker_logs_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "broker", "--listen", "127.0.0.1:0"]
    command += ["--data", str(tmp_path / "data"), "--log-level", "debug"]
    broker = subprocess.Popen(
        command,
        env=os.environ | ENV | {"MILLSTREAM_BROKER_NONSENSE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert broker.stdout is not None
    assert broker.stderr is not None
    ready = re.search(r"ready on 127.0.0.1:(\d+)", broker.stdout.readline())
    assert ready is not None
    first = broker.stderr.readline()
    with connections(("127.0.0.1", int(ready[1])), 1, b"GET / HTTP/1.1\r\n\r\n"):
        first += broker.stderr.readline()
    broker.send_signal(signal.SIGTERM)
    _, stderr = broker.communicate(timeout=60)
    found = lines_in(first + stderr)
    assert {"level": "warning"}.items() <= found[0].items(), "of the unknown variable"
    assert any(one["logger"] != "millstream" for one in found)
    assert found[-1]["message"] == "millstream broker stopped"


def test_a_server_logs_json_and_a_traceback_in_its_line(shop: Path) -> None:
    views = shop.parent / "data" / "views"
    views.mkdir(parents=True)
    (views / "clicks_per_url.sqlite").write_bytes(b"\0garbage" * 64)
    stderr = shop.parent / "stderr.txt"
    with ServeProcess(shop, env=ENV, stderr=stderr) as server:
        with connections(server.address, 1, b"\x16\x03\x01\r\n\r\n"):
            ask(server.address, get("/v1/views/clicks_per_url/rows"))
        eventually(lambda: "Invalid HTTP" in stderr.read_text(), what="the bad request is told")
        assert server.stop() == 0
    found = lines_in(stderr.read_text(encoding="utf-8"))
    assert any(one["logger"] == "millstream.web.reporting" for one in found)
    assert found[-1] | {"time": ""} == {
        "time": "",
        "level": "info",
        "logger": "millstream",
        "message": "millstream serve stopped",
    }


@pytest.mark.parametrize(
    "command",
    [
        ("run", "nothing.py"),
        ("up", "nothing.py"),
        ("serve", "nothing.py"),
        ("capture", "run", "nothing"),
        ("topics", "list"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_fails_says_it_in_json(command: tuple[str, ...], tmp_path: Path) -> None:
    [told] = said_by(*command, folder=tmp_path)
    assert told["level"] == "error"
    assert not told["message"].startswith("millstream:")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("--nope",), "No such option: --nope"),
        (("nope",), "No such command 'nope'"),
        (("topics", "list", "--nope"), "millstream topics list: No such option: --nope"),
        (("topics", "describe"), "Missing argument 'TOPIC'"),
        (("consume", "orders", "--max", "x"), "Invalid value for '--max'"),
        (("topics",), "Usage: "),
    ],
)
def test_what_is_wrong_with_a_command_line_is_json_too(
    command: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    [found] = said_by(*command, folder=tmp_path)
    assert found["level"] == "error"
    assert told in found["message"]


@pytest.mark.full
def test_jobs_report_in_json(shop: Path) -> None:
    """With a broker of their own, whose lines come by the same way."""
    env = {name: value for name, value in os.environ.items() if name != "MILLSTREAM_BROKERS"}
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "run", str(shop), "--once"],
        cwd=shop.parent,
        env=env | {"MILLSTREAM_LOG_FORMAT": "json", "MILLSTREAM_SPARK_QUICK_START": "true"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = lines_in(done.stderr)
    assert found[-1]["message"] == "1 job done"
    assert any(one["logger"] == "millstream.broker.topics" for one in found)
