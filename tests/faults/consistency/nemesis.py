"""What goes wrong in a run: kills, power cuts, pauses and zombies, by a seeded schedule.

The schedule repeats with its seed; the operating system's timing does not. One fault at a time,
each healed before the next, and all of them before `rage` returns.
"""

import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from tests.faults.consistency.broker_under_test import BrokerUnderTest
from tests.faults.consistency.clients import Clients

# Longer than a session: a group gets rid of members that were killed. Each restart of the broker
# gives them another whole session, so that it might not, otherwise.
PEACE_SECONDS = 7.0
PEACE_AFTER_FAULTS = 10
CALM_SECONDS = (0.2, 0.9)
PAUSE_SECONDS = (0.2, 1.5)
DOWN_SECONDS = (0.0, 0.5)
# A start takes about half a second: a kill within this falls before, into or after the recovery.
START_SECONDS = (0.1, 0.6)
# Once its successor has initialised the id, it has a while for transactions of its own.
ZOMBIE_SECONDS = (0.1, 0.8)

BROKER_FAULTS = ("kill_broker", "kill_broker", "cut_power", "cut_power", "kill_in_recovery")
OTHER_FAULTS = ("pause_broker", "pause_client", "kill_client", "raise_zombie", "raise_zombie")


def faults_of(broker: BrokerUnderTest) -> Sequence[str]:
    return (*BROKER_FAULTS, *OTHER_FAULTS) if broker.can_be_killed else OTHER_FAULTS


class Nemesis:
    """`faults` are names of its methods; one that is there twice comes twice as often."""

    def __init__(
        self, broker: BrokerUnderTest, clients: Clients, random: Random, faults: Sequence[str]
    ) -> None:
        self._broker = broker
        self._clients = clients
        self._random = random
        self._faults = faults
        self._deck: list[str] = []
        self.done: Counter[str] = Counter()

    def rage(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._wait(CALM_SECONDS)
            fault = self._next_fault()
            getattr(self, fault)()
            self.done[fault] += 1
            self._clients.tend()
            if self.done.total() % PEACE_AFTER_FAULTS == 0:
                time.sleep(PEACE_SECONDS)

    def _next_fault(self) -> str:
        """Each kind has its turn before any comes again."""
        if not self._deck:
            self._deck = self._random.sample(self._faults, len(self._faults))
        return self._deck.pop()

    def _wait(self, bounds: tuple[float, float]) -> None:
        time.sleep(self._random.uniform(*bounds))

    def kill_broker(self) -> None:
        self._broker.kill()
        self._wait(DOWN_SECONDS)
        self._broker.restart()

    def kill_in_recovery(self) -> None:
        """What a kill left is recovered; what was not synced of that is lost at once."""
        self._broker.kill()
        self._broker.restart_and_kill(self._random.uniform(*START_SECONDS))
        self._broker.cut_power(self._random)
        self._broker.restart()

    def cut_power(self) -> None:
        self._broker.cut_power(self._random)
        self._broker.restart()

    def pause_broker(self) -> None:
        self._broker.pause()
        self._wait(PAUSE_SECONDS)
        self._broker.resume()

    def pause_client(self) -> None:
        client = self._random.choice(list(self._clients.on_stage.values()))
        client.pause()
        self._wait(PAUSE_SECONDS)
        client.resume()

    def kill_client(self) -> None:
        client = self._random.choice(list(self._clients.on_stage.values()))
        client.kill()
        self._clients.replace(client)

    def raise_zombie(self) -> None:
        """A transactional client stands still, is replaced, and wakes up again."""
        candidates = [one for one in self._clients.on_stage.values() if one.part.is_transactional]
        zombie = self._random.choice(candidates)
        zombie.pause()
        self._clients.wait_until_at_work(self._clients.replace(zombie))
        self._wait(ZOMBIE_SECONDS)
        zombie.resume()
