"""`millstream events forget` and `consent`, as an operator runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND_SECONDS_MAX = 60
SHOP = """
import millstream as ms

@ms.event(subject="user")
class Registered:
    user: str
    email: ms.Personal[str]

class Users(ms.Aggregate):
    email = None

    def register(self, user, email):
        yield Registered(user, email)

    def on_Registered(self, event):
        self.email = event.email

app = ms.App("shop", data={data!r})
users = app.aggregates(Users)
"""


class Shop:
    """An application's file, run by commands. Each starts the broker over the data and ends it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.py"
        self.file.write_text(SHOP.format(data=str(folder / "shop.millstream")))

    def run(self, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "millstream", "events", *arguments]
        return subprocess.run(
            command,
            input=answer,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
            cwd=self.file.parent,
        )

    def fill(self) -> None:
        code = (
            "import shop; shop.users['1'].register('ada', 'ada@x.org'); "
            "shop.users['2'].register('ada', 'ada@y.org'); "
            "shop.users['3'].register('bob', 'bob@x.org'); shop.app.close()"
        )
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            timeout=COMMAND_SECONDS_MAX,
            cwd=self.file.parent,
        )


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_subject_is_looked_at_asked_for_and_forgotten(shop: Shop) -> None:
    shop.fill()
    looked = shop.run("forget", "shop.py", "ada", "--dry-run")
    assert looked.returncode == 0, looked.stderr
    assert "forgotten no" in looked.stdout
    assert "2 with sealed values, in 2 streams" in looked.stdout
    assert "Users:1: 1" in looked.stdout

    refused = shop.run("forget", "shop.py", "ada", answer="n\n")
    assert refused.returncode != 0
    assert "Forget 1 subject for good, with personal data in 2 events?" in refused.stderr

    done = shop.run(
        "forget", "shop.py", "ada", "--why", "she asked", "--by", "desk", "--yes", "--json"
    )
    assert done.returncode == 0, done.stderr
    [report] = json.loads(done.stdout)
    assert report["streams"] == {"Users:1": 1, "Users:2": 1}
    assert (report["why"], report["by"], report["is_repeat"]) == ("she asked", "desk", False)
    assert (report["keys_rewrapped"], report["had_key"]) == (1, True)
    assert "ada" not in done.stdout.replace("shop", "").replace(report["subject"], "")

    back = shop.run("consent", "shop.py", "ada", "--json")
    assert json.loads(back.stdout) == {"was_forgotten": True}


def test_a_name_that_nobody_knows_is_doubted(shop: Shop) -> None:
    asked = shop.run("forget", "shop.py", "nobody", answer="n\n")
    assert "Nothing was ever sealed for one of them" in asked.stderr
    told = shop.run("forget", "shop.py", "")
    assert told.returncode != 0
    assert "a subject is told by" in told.stderr
