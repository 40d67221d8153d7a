"""docs/guides/operators_exercise.md: what it provokes shows what it says, where it says."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import free_ports
from tests.support.protected_broker import PASSWORD, ProtectedBroker
from tests.support.waiting import eventually

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operators_exercise.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WITHIN_S = 180.0

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def section(number: int) -> str:
    text = GUIDE.read_text(encoding="utf-8")
    return text.partition(f"\n## {number}. ")[2].partition("\n## ")[0]


class Exercise:
    """The folder of the guide, its broker and its run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        broker, metrics, jobs = free_ports(3)
        self.address, self.jobs_url = f"127.0.0.1:{broker}", f"http://127.0.0.1:{jobs}/metrics"
        self.metrics = f"127.0.0.1:{metrics}"
        self.env = {
            **os.environ,
            "MILLSTREAM_BROKERS": self.address,
            "MILLSTREAM_SPARK_QUICK_START": "true",
            "PYTHONPATH": str(folder),
        }
        shop, click = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
        (folder / "shop.py").write_text(shop)
        (folder / "click.py").write_text(click)
        self._jobs_port = jobs
        self.broker: subprocess.Popen[bytes] | None = None
        self.run: subprocess.Popen[bytes] | None = None

    def command(self, *words: str, fed: str | None = None, **env: str) -> str:
        """All that it says."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.env | env,
            input=fed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
        )
        return done.stdout

    def millstream(self, *words: str, fed: str | None = None, **env: str) -> str:
        return self.command("-m", "millstream", *words, fed=fed, **env)

    def click(self, hours: float, *urls: str) -> str:
        return self.command("click.py", str(hours), *urls)

    def read(self, view: str, offset: int) -> str:
        """What a reader gets who waits for an offset of the topic."""
        program = (
            "import shop, types\n"
            f"at = types.SimpleNamespace(topic='clicks', partition=0, offset={offset})\n"
            f"print(shop.app.view({view!r}).count(after=at, timeout=1))"
        )
        return self.command("-c", program)

    def _start(self, log: str, *words: str) -> "subprocess.Popen[bytes]":
        with (self.folder / log).open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "millstream", *words],
                cwd=self.folder,
                env=self.env,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def start_broker(self) -> None:
        listen = ("--listen", self.address, "--metrics-listen", self.metrics)
        self.broker = self._start("broker.log", "broker", "--data", "broker", *listen)
        eventually(
            lambda: "ready on" in (self.folder / "broker.log").read_text(),
            what="the broker",
            within_s=WITHIN_S,
        )

    def start_run(self) -> None:
        (self.folder / "run.log").unlink(missing_ok=True)
        listen = f"127.0.0.1:{self._jobs_port}"
        self.run = self._start("run.log", "run", "shop.py", "--metrics-listen", listen)

    def end_run(self, how: signal.Signals = signal.SIGINT) -> None:
        assert self.run is not None
        if self.run.poll() is None:
            self.run.send_signal(how)
        self.run.wait(WITHIN_S)

    def scrape(self) -> str:
        with urllib.request.urlopen(self.jobs_url, timeout=20) as answer:
            return str(answer.read().decode())

    def log(self) -> str:
        return (self.folder / "run.log").read_text()

    def shows(self, number: int, words: str, look: Callable[[], str]) -> None:
        """The guide quotes these words in that section, and they come; `...` stands for more."""
        quoted = section(number)
        assert f"{words}" in quoted, f"the guide does not say it: {words}"
        parts = [
            part.strip() for part in words.replace("127.0.0.1:9092", self.address).split("...")
        ]
        pattern = re.compile(".*?".join(map(re.escape, filter(None, parts))), re.DOTALL)
        eventually(lambda: bool(pattern.search(look())), what=words, within_s=WITHIN_S)

    def workers(self) -> list[int]:
        """Spark's Python processes."""
        assert self.run is not None
        found = subprocess.run(
            ["ps", "-wweo", "pid,sid,args"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[1:]
        rows = [line.split(maxsplit=2) for line in found]
        return [
            int(pid)
            for pid, session, args in rows
            if int(session) == self.run.pid and "pyspark.sql.streaming" in args
        ]

    def standard_errors_of_workers(self) -> set[Path]:
        """Where each of them writes what it says at length."""
        found = set()
        for pid in self.workers():
            with contextlib.suppress(FileNotFoundError):  # it has ended
                found.add(Path(f"/proc/{pid}/fd/2").readlink())
        return found

    def end(self) -> None:
        for process in (self.run, self.broker):
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(WITHIN_S)


@pytest.fixture
def exercise(tmp_path: Path) -> Iterator[Exercise]:
    exercise = Exercise(tmp_path)
    try:
        yield exercise
    finally:
        exercise.end()


def test_what_goes_wrong_with_jobs_shows_where_the_guide_says(exercise: Exercise) -> None:
    make = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)"
    exercise.command("-c", f"import sqlite3; sqlite3.connect('away.db').execute({make!r})")
    exercise.start_broker()
    exercise.start_run()
    starting = "3 jobs: starting (Spark starts)"
    assert starting in GUIDE.read_text(encoding="utf-8")
    eventually(lambda: starting in exercise.log(), what=starting, within_s=WITHIN_S)

    # 6. It starts without its database.
    exercise.shows(6, "SQLite cannot use it now (unable to open database file)", exercise.log)
    exercise.shows(6, "orders   waiting", lambda: exercise.millstream("capture", "list"))
    (exercise.folder / "away.db").rename(exercise.folder / "shop.db")
    exercise.shows(6, "streaming", lambda: exercise.millstream("capture", "list"))

    exercise.click(0, "/home", "/cart")
    for job in ("pages", "minutes", "last_page"):
        running = f"{job}: running, 2 rows"
        eventually(lambda: running in exercise.log(), what=running, within_s=WITHIN_S)  # noqa: B023

    # 4. Workers of Spark's are killed.
    for pid in exercise.workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    restarted = 'millstream_job_restarts_total{job_name="pages"} 1.0'
    exercise.shows(4, restarted, exercise.scrape)

    # 1. A bug of a job.
    exercise.click(0, "/bug")
    exercise.shows(
        1, "last_page: failed, ... (ValueError: no such page: /bug (at ...", exercise.log
    )
    exercise.shows(1, 'millstream_job_running{job_name="last_page"} 0.0', exercise.scrape)
    exercise.shows(
        1,
        "NotFreshYet: ... Its job has failed (process ...): ValueError: no such page: /bug ...",
        lambda: exercise.read("last_page", 2),
    )
    logs = exercise.folder / "shop.millstream" / "logs"
    assert "Traceback (most recent call last)" in (logs / "jobs.log").read_text()
    assert "no such page: /bug" in (logs / "spark.log").read_text()
    assert exercise.standard_errors_of_workers() == {logs / "workers.log"}
    assert "Traceback" not in exercise.log()

    # 2. A record that nobody can read; 3. a late event, and an impossible one.
    exercise.millstream("produce", "clicks", "--key", "x", fed="not json\n")
    dead = 'millstream_job_dead_letters{job_name="pages"} 1.0'
    exercise.shows(2, dead, exercise.scrape)
    exercise.shows(2, "clicks.dead", lambda: exercise.millstream("topics", "list"))
    exercise.click(3, "/late")
    exercise.click(-9600, "/future")
    exercise.shows(3, "shop.minutes  clicks  1 ...", _spaced(exercise, "late", "list"))
    exercise.shows(3, 'millstream_job_late_events{job_name="minutes"} 1.0', exercise.scrape)

    # 5. Nobody runs the jobs.
    exercise.end_run()
    stopped = "Its job does not run: it was stopped"
    exercise.shows(5, stopped, lambda: exercise.read("pages", 99))

    # 9. A view's file is damaged, and built again.
    view = exercise.folder / "shop.millstream" / "views" / "pages.sqlite"
    view.write_bytes(os.urandom(3_000))
    for beside in view.parent.glob("pages.sqlite-*"):
        beside.unlink()
    exercise.shows(9, "pages      url              -      -", _listed_views(exercise))
    broken = exercise.millstream("run", "shop.py", "--once", "--only", "pages")
    assert "not a SQLite database, or damaged; remove it and build it again" in broken
    view.unlink()
    once = ("--once", "--only", "pages", "--rebuild", "pages")
    assert "1 job done" in exercise.millstream("run", "shop.py", *once)
    assert "/home" in exercise.millstream("views", "query", "shop.py", "pages")

    # 7. The broker is killed.
    assert exercise.broker is not None
    exercise.broker.kill()
    exercise.broker.wait(WITHIN_S)
    exercise.shows(
        7, "PublishTimedOut: clicks: not confirmed within 5 s", lambda: exercise.click(0, "/x")
    )
    exercise.shows(
        7, "127.0.0.1:9092: no broker answers there", lambda: exercise.millstream("doctor")
    )
    refused = "No broker answers at 127.0.0.1:9092 (connection refused)"
    exercise.shows(7, refused, lambda: exercise.millstream("topics", "list"))
    exercise.start_broker()
    log = exercise.folder / "broker.log"
    exercise.shows(7, "the last stop was not clean; recovering", log.read_text)


def _spaced(exercise: Exercise, *words: str) -> Callable[[], str]:
    """Two spaces between the columns of a table, however wide they are."""
    return lambda: re.sub(r" {2,}", "  ", exercise.millstream(*words))


def _listed_views(exercise: Exercise) -> Callable[[], str]:
    return lambda: exercise.millstream("views", "list", "shop.py")


def test_a_wrong_password_shows_where_the_guide_says(exercise: Exercise, tmp_path: Path) -> None:
    folder = tmp_path / "secured"
    folder.mkdir()
    (tmp_path / "bad").write_text("wrong\n")
    (tmp_path / "bad").chmod(0o600)
    assert PASSWORD != "wrong"
    with ProtectedBroker(folder, sasl="SCRAM-SHA-256", has_tls=False) as broker:
        login = {
            "MILLSTREAM_BROKERS": broker.bootstrap,
            "MILLSTREAM_USER": "ada",
            "MILLSTREAM_PASSWORD_FILE": "bad",
        }
        exercise.shows(
            10,
            "refuses the login of ada: ... user name or password are not right. Say who you are "
            "with MILLSTREAM_USER and MILLSTREAM_PASSWORD_FILE.",
            lambda: exercise.millstream("topics", "list", **login),
        )
        exercise.shows(
            10,
            "the login of user ada failed: ...",
            lambda: exercise.millstream("doctor", **login),
        )
