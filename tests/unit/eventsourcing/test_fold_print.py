"""A snapshot is of use as long as its fold is the same: what changes the print, and what not."""

import os
import subprocess
import sys
from pathlib import Path
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


HELPED = {
    "a module": ("import {m}", "{m}.rate(event.amount)"),
    "a module by another name": ("import {m} as money", "money.rate(event.amount)"),
    "a package's module": ("import {m}.inner", "{m}.inner.rate(event.amount)"),
    "a class": ("from {m} import Rates", "Rates().of(event.amount)"),
    "an object": ("from {m} import RATES", "RATES.of(event.amount)"),
    "a table": ("from {m} import TABLE", "TABLE['eur'] * event.amount"),
    "a constant of a module": ("import {m}", "{m}.RATE * event.amount"),
    "a function over another module": ("from {m} import through", "through(event.amount)"),
    "a closure": ("from {m} import made", "made(event.amount)"),
    "a partial": ("from {m} import partly", "partly(event.amount)"),
    "an import inside": ("", "__import_inside__"),
}
HELPER = """
from functools import partial
from . import inner

RATE = 2
TABLE = {"eur": RATE}

def rate(amount):
    return amount * 2

def through(amount):
    return inner.rate(amount)

def scaled(factor):
    def scale(amount):
        return amount * factor
    return scale

made = scaled(2)
partly = partial(max, 2)

class Rates:
    def __init__(self):
        self.factor = 2

    def of(self, amount):
        return amount * self.factor * 2

RATES = Rates()
"""


def printed_with_helper(folder: Path, how: str, factor: int) -> str:
    """In a process of its own: a module that changes while a program runs is not read again."""
    package = folder / f"helper_{factor}" / "helpers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(HELPER.replace("2", str(factor)))
    (package / "inner.py").write_text(f"def rate(amount):\n    return amount * {factor}\n")
    imported, used = (text.format(m="helpers") for text in HELPED[how])
    call = f"self.balance += {used}"
    if used == "__import_inside__":
        call = "from helpers import rate\n        self.balance += rate(event.amount)"
    source = SOURCE.replace("self.balance += doubled(event.amount)", call)
    program = f"{imported}\n{source}\nfrom millstream.eventsourcing.fold_print import fold_print\n"
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}print(fold_print(Account))"],
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


@pytest.mark.parametrize("how", HELPED)
def test_another_helper_is_another_print_however_it_is_named(tmp_path: Path, how: str) -> None:
    first = printed_with_helper(tmp_path / "a", how, 2)
    assert first == printed_with_helper(tmp_path / "b", how, 2)
    assert first != printed_with_helper(tmp_path / "c", how, 3)
