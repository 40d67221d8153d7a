"""A snapshot is of use as long as its fold is the same: what changes the print, and what not."""

import os
import subprocess
import sys
from typing import Any

import pytest

from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.fold_print import fold_print

SOURCE = """
from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.upcasting import upcast

RATE = 2

def doubled(amount):
    return amount * RATE

@event(version=2)
class Deposited:
    amount: int
    note: str = ""

@upcast(Deposited, from_version=1)
def step(data):
    return {"amount": data["euros"]}

class Account(Aggregate):
    balance = 0
    limit = 100

    def deposit(self, amount):
        if amount > self.limit:
            raise ValueError("too much")
        yield Deposited(amount)

    def on_Deposited(self, event):
        self.balance += doubled(event.amount)
        self._note(event)

    def _note(self, event):
        self.last = event.note
"""


def printed(old: str = "", new: str = "") -> str:
    assert old in SOURCE
    space: dict[str, Any] = {"__name__": "bank"}
    exec(compile(SOURCE.replace(old, new, 1) if old else SOURCE, "bank.py", "exec"), space)
    account: type[Aggregate] = space["Account"]
    return fold_print(account)


def test_the_same_program_has_the_same_print() -> None:
    assert printed() == printed()


def test_the_print_is_the_same_in_every_process() -> None:
    """Sets come in another order there, and objects are at other addresses."""
    source = SOURCE.replace("limit = 100", "limit = {'a', 'b', 'c'}; other = object()").replace(
        "self.last = event.note", "self.last = event.note in {'x', 'y', 'z'}"
    )
    code = f"""
space = {{"__name__": "bank"}}
exec(compile({source!r}, "bank.py", "exec"), space)
from millstream.eventsourcing.fold_print import fold_print
print(fold_print(space["Account"]))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+= doubled", "-= doubled"),
        ("amount * RATE", "amount * RATE + 1"),
        ("RATE = 2", "RATE = 3"),
        ("balance = 0", "balance = 1"),
        ("self.last = event.note", "self.last = event.note + '!'"),
        ('data["euros"]', 'data["pounds"]'),
        ('note: str = ""', 'note: str = "none"'),
        ("class Account(Aggregate)", "class Account(Aggregate, snapshot_version=2)"),
        ("class Account(Aggregate)", 'class Account(Aggregate, name="bank")'),
        ("@event(version=2)", '@event(version=2, name="money")'),
        ("@event(version=2)", "@event(version=2, closes=True)"),
    ],
)
def test_what_a_fold_does_is_in_its_print(old: str, new: str) -> None:
    assert printed(old, new) != printed()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("amount > self.limit", "amount > self.limit // 2"),
        ("RATE = 2", "# a comment\n\nRATE = 2"),
        ('"too much"', '"far too much"'),
    ],
)
def test_rules_and_comments_are_not(old: str, new: str) -> None:
    assert printed(old, new) == printed()
