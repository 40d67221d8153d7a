"""A bank account as a history of events: rules, retries, races, mistakes, the past.

    python examples/bank_account.py

Without MILLSTREAM_BROKERS it starts a broker of its own, with its data in ./bank.millstream.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import millstream as ms


@ms.event
class Opened:
    owner: str


@ms.event
class Deposited:
    amount: int


@ms.event
class Withdrawn:
    amount: int


@ms.event(closes=True)
class YearClosed:
    """Balance brought forward: what is before it may be deleted."""

    owner: str
    balance: int


class Account(ms.Aggregate):
    owner = ""
    balance = 0

    def open(self, owner: str) -> Iterator[object]:
        if self.owner:
            raise ms.Rejected("it is open already")
        yield Opened(owner)

    def deposit(self, amount: int) -> Iterator[object]:
        self._must_be_open()
        yield Deposited(amount)

    def withdraw(self, amount: int) -> Iterator[object]:
        self._must_be_open()
        if amount > self.balance:
            raise ms.Rejected(f"insufficient funds: {self.balance} of {amount}")
        yield Withdrawn(amount)

    def close_year(self) -> Iterator[object]:
        yield YearClosed(self.owner, self.balance)

    def _must_be_open(self) -> None:
        if not self.owner:
            raise ms.Rejected("there is no such account")

    def on_Opened(self, event: Opened) -> None:  # noqa: N802 - the name of the event
        self.owner = event.owner

    def on_Deposited(self, event: Deposited) -> None:  # noqa: N802 - the same
        self.balance += event.amount

    def on_Withdrawn(self, event: Withdrawn) -> None:  # noqa: N802 - the same
        self.balance -= event.amount

    def on_YearClosed(self, event: YearClosed) -> None:  # noqa: N802 - the same
        self.owner, self.balance = event.owner, event.balance


def main(app: ms.App, account_id: str) -> Account:
    account = app.aggregates(Account)[account_id]
    with app.acting(by="ada", why="a new customer"):
        account.open("Alice")
        account.deposit(100, id=f"{account_id}-first")
        account.deposit(100, id=f"{account_id}-first")  # a retry: nothing happens
    print(f"{account.state().balance} after a deposit and its retry")

    def withdraw(_: int) -> bool:
        try:
            account.withdraw(10)
        except ms.Rejected:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        succeeded = sum(threads.map(withdraw, range(25)))
    print(f"{succeeded} of 25 got 10 each, and {account.state().balance} is left")

    mistake = account.deposit(9_000)
    account.shun(mistake.events[0], why="it was 90", by="ada")
    account.deposit(90)
    account.close_year()
    for one in account.history():
        mark = f" (does not count: {one.shunned})" if one.is_shunned else ""
        print(f"{one.version:3} {one.at:%H:%M:%S} {one.event} {one.by or ''}{mark}")
    print(f"once: {account.state(version=2).balance}, now: {account.state().balance}")
    return account.state()


if __name__ == "__main__":
    with ms.App("bank") as bank:
        main(bank, account_id=f"alice-{uuid4().hex[:8]}")
