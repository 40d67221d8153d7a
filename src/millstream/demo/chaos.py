"""`millstream demo chaos`: kills a part while the shop is busy, lets it settle, compares totals.

The broker, the capture, and the process of jobs and HTTP die in turn, as by kill -9. Then the
generator rests, and what is in the views must come to what is in the database, to the cent.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.base.errors import Rejected
from millstream.demo.figures import Comparison, Figures, opened_figures
from millstream.demo.screen import comparison_lines
from millstream.demo.show import Tell, live_panel, print_line
from millstream.demo.stage import Stage

VICTIMS = ("broker", "jobs", "capture")
BUSY_SECONDS = 6.0
LOOK_SECONDS = 1.0
# Equal once may be by chance: what comes twice would come soon.
STAYS_SECONDS = 3.0
# A machine may be busy with other things: this is not about how long it takes.
READY_SECONDS_MAX = 600.0
SETTLE_SECONDS_MAX = 600.0

Update = Callable[[list[str]], None]


class NotReady(Rejected):
    def __init__(self, *, what: str, seconds: float) -> None:
        super().__init__(f"{what}: not within {seconds:.0f} s; up.log in the demo's data says more")
        self.what, self.seconds = what, seconds


class TotalsDiffer(Rejected):
    def __init__(self, *, rounds: Sequence[int]) -> None:
        listed = ", ".join(map(str, rounds))
        super().__init__(f"views and database differ after round {listed}")
        self.rounds = rounds


@dataclass(frozen=True, slots=True)
class Round:
    """One death: who died, how long all took to be equal again, and what was compared."""

    number: int
    victim: str
    seconds: float
    comparisons: Sequence[Comparison]

    @property
    def is_equal(self) -> bool:
        return all(one.is_equal for one in self.comparisons)

    def __str__(self) -> str:
        orders, payments = self.comparisons[0].database, self.comparisons[-1].database
        words = "totals equal" if self.is_equal else "TOTALS DIFFER"
        return (
            f"round {self.number}: {self.victim} killed; {words} after {self.seconds:.0f} s of "
            f"rest: {orders} orders, {payments} payments"
        )


class Chaos:
    def __init__(self, stage: Stage, figures: Figures, *, tell: Tell, update: Update) -> None:
        self._stage, self._figures = stage, figures
        self._tell, self._update = tell, update

    def run(self, rounds: int) -> list[Round]:
        self._tell("waiting until every view has its first rows")
        self._await("every view has its first rows", READY_SECONDS_MAX, self._all_there)
        victims = itertools.islice(itertools.cycle(VICTIMS), rounds)
        done = []
        for number, victim in enumerate(victims, 1):
            done.append(self._round(number, victim))
            self._tell(str(done[-1]))
            if not done[-1].is_equal:
                self._tell("\n".join(comparison_lines(done[-1].comparisons)))
        return done

    def _round(self, number: int, victim: str) -> Round:
        self._stage.go_on()
        self._await(f"the {victim} to kill", READY_SECONDS_MAX, lambda: self._stage.has(victim))
        self._busy()
        self._tell(f"round {number}: {victim} dies; the shop goes on, and then rests")
        self._stage.kill(victim)
        self._busy()
        self._stage.pause()
        resting = self._stage.generator.told
        self._await("the generator to rest", SETTLE_SECONDS_MAX, lambda: resting.is_resting)
        started = time.monotonic()
        comparisons = self.settled()
        return Round(number, victim, time.monotonic() - started, comparisons)

    def _busy(self) -> None:
        until = time.monotonic() + BUSY_SECONDS
        while time.monotonic() < until:
            self._look()
            time.sleep(LOOK_SECONDS)

    def settled(self) -> list[Comparison]:
        """What there is when all is equal and stays so, or the time is up."""
        deadline, equal_since = time.monotonic() + SETTLE_SECONDS_MAX, None
        while True:
            found, now = self._look(), time.monotonic()
            if not all(one.is_equal for one in found):
                equal_since = None
            elif equal_since is None:
                equal_since = now
            elif now - equal_since >= STAYS_SECONDS:
                return found
            if now > deadline:
                return found
            time.sleep(LOOK_SECONDS)

    def _all_there(self) -> bool:
        return all(one.found is not None and one.found.number for one in self._look())

    def _look(self) -> list[Comparison]:
        found = self._figures.comparisons()
        self._update(comparison_lines(found))
        return found

    def _await(self, what: str, seconds: float, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise NotReady(what=what, seconds=seconds)
            time.sleep(LOOK_SECONDS)


def run_chaos(stage: Stage, *, rounds: int, is_plain: bool) -> list[Round]:
    """Raises TotalsDiffer if any round did not end as it should."""
    stage.start()
    print_line(f"console on {stage.up.told.addresses['console']}")
    with stage.reader() as app, opened_figures(app, stage.database) as figures:
        if is_plain:
            chaos = Chaos(stage, figures, tell=print_line, update=lambda _lines: None)
            done = chaos.run(rounds)
        else:
            with live_panel("Chaos: the database and the views") as (update, tell):
                done = Chaos(stage, figures, tell=tell, update=update).run(rounds)
    if wrong := [one.number for one in done if not one.is_equal]:
        raise TotalsDiffer(rounds=wrong)
    return done
