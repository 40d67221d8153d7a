"""Seats are booked and paid for in two steps, while the processes that host them are killed -9 in
turn: in the end each seat that was held is paid for or given back, and no money is lost or made."""

import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import millstream as ms
from millstream.embedded import Broker
from tests.support.committed_topic import committed
from tests.support.rounds import in_full_and_long
from tests.support.waiting import eventually

APP = Path(__file__).parent / "booking_app.py"
PRICE = 30
BUDGETS = {"ada": 500, "bob": 70, "cid": 20, "dan": 0}
WITHIN_S = 150.0


class Booking:
    """One app: two processes that host it, and this one, which only sends."""

    def __init__(self, bootstrap: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.name = f"booking-{uuid.uuid4().hex[:12]}"
        monkeypatch.setenv("BOOKING_APP", self.name)
        monkeypatch.setenv("BOOKING_DATA", str(directory / "sender"))
        monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
        self.module = self._loaded()
        self.app: ms.App = self.module.app
        self.seats: Any = self.app.aggregates(self.module.example.Seat)
        self.wallets: Any = self.app.aggregates(self.module.example.Wallet)
        self.hosts: list[subprocess.Popen[bytes]] = []

    def _loaded(self) -> ModuleType:
        import importlib.util

        spec = importlib.util.spec_from_file_location("booking_app", APP)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def start_host(self) -> "subprocess.Popen[bytes]":
        number = len(self.hosts)
        with (self.directory / f"host-{number}.err").open("wb") as told:
            host = subprocess.Popen(
                [sys.executable, "-m", "millstream", "run", str(APP)],
                env={**os.environ, "BOOKING_DATA": str(self.directory / f"host-{number}")},
                stdout=told,
                stderr=told,
            )
        self.hosts.append(host)
        return host

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
            host.wait()
        self.app.close()


def run_bookings(booking: Booking, *, seats: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    hosts = [booking.start_host() for _ in range(2)]
    for customer, budget in BUDGETS.items():
        booking.wallets[customer].top_up(budget, id=f"budget-{customer}")
    pending = []
    for number in range(seats * 8):
        seat, customer = f"{number % seats}", list(BUDGETS)[number % seats % len(BUDGETS)]
        if number >= seats:
            customer = chance.choice(list(BUDGETS))
        ask = booking.seats[seat].hold
        pending.append(ask(f"b-{number}", customer, PRICE, id=f"hold-{number}", wait=False))
        if number % (seats * 8 // kills) == 0:
            victim = chance.randrange(2)
            hosts[victim].kill()
            hosts[victim].wait()
            hosts[victim] = booking.start_host()
            time.sleep(chance.uniform(0.5, 2.0))
    for one in pending:
        try:
            one.result(WITHIN_S)
        except ms.Rejected:
            continue


def check_bookings(booking: Booking, *, seats: int) -> None:
    def is_settled() -> bool:
        states = [booking.seats[f"{number}"].state() for number in range(seats)]
        return all(one.is_paid or not one.booking for one in states)

    eventually(is_settled, what="no seat is only held", within_s=WITHIN_S)
    booked: Counter[str] = Counter()
    for number in range(seats):
        history = [type(one.event).__name__ for one in booking.seats[f"{number}"].history()]
        state = booking.seats[f"{number}"].state()
        booked[state.customer] += bool(state.is_paid)
        given_back = history.count("SeatReleased")
        assert history.count("SeatHeld") == history.count("SeatBooked") + given_back
        assert "HoldLost" not in history
    for customer, budget in BUDGETS.items():
        assert booking.wallets[customer].state().balance == budget - PRICE * booked[customer]
    assert booked["ada"] > 0
    assert not booked["dan"]
    for topic in ("commands.dead", "reactions.dead"):
        assert list(committed(booking.bootstrap, f"{booking.name}.{topic}", partitions=1)) == []
    assert not list(booking.app.event_store().verify())


def test_what_is_held_is_paid_for_or_given_back(
    millstream_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = Booking(millstream_broker.bootstrap, tmp_path, monkeypatch)
    try:
        run_bookings(booking, seats=6, kills=2, seed=1)
        check_bookings(booking, seats=6)
    finally:
        booking.close()


@pytest.mark.full
@pytest.mark.parametrize("seed", in_full_and_long(2, 4))
@pytest.mark.parametrize("log", ["millstream_broker", "apache_kafka"])
def test_it_is_so_in_every_run(
    log: str,
    seed: int,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = request.getfixturevalue(log)
    bootstrap = found if isinstance(found, str) else found.bootstrap
    booking = Booking(bootstrap, tmp_path, monkeypatch)
    try:
        run_bookings(booking, seats=12, kills=6, seed=seed)
        check_bookings(booking, seats=12)
    finally:
        booking.close()
