"""Random instances of an application, lost answers and restarts against one streams group.

The machine plays the members and the broker's shell: each change is stored as bytes, and a restart
reads them back. A member processes what it was told, until it has heard otherwise and obeyed.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.broker.streams.streams_group import StreamsGroupLimits
from tests.unit.broker.groups.consumer_steps import topic
from tests.unit.broker.streams.steps import (
    REBALANCE_MS,
    SESSION_MS,
    StreamsDriver,
    Thread,
    all_tasks,
)

PARTITIONS_MAX = 6
PROCESSES = st.sampled_from("pqr")
PICKS = st.integers(min_value=0, max_value=9)


class SlowThread(Thread):
    """Hears now, and obeys when it comes to it."""

    is_slow = False

    def obey(self) -> None:
        if self.is_slow:  # what was taken from it goes on until then; what is new waits
            return
        super().obey()


class StreamsGroupMachine(RuleBasedStateMachine):
    @initialize(partitions=st.integers(1, 4), standbys=st.integers(0, 2), delay_s=st.integers(0, 3))
    def start(self, partitions: int, standbys: int, delay_s: int) -> None:
        self.partitions = partitions
        self.driver = StreamsDriver(
            partitions, standbys=standbys, initial_rebalance_delay_ms=delay_s * 1_000
        )
        self.threads: list[SlowThread] = []
        self.number = 0

    def pick(self, pick: int) -> SlowThread | None:
        return self.threads[pick % len(self.threads)] if self.threads else None

    @rule(process=PROCESSES)
    def join(self, process: str) -> None:
        if len(self.threads) < 6:
            self.number += 1
            thread = SlowThread(self.driver, f"thread-{self.number}", process)
            thread.join()
            self.threads.append(thread)

    @rule(pick=PICKS, is_slow=st.booleans())
    def beat(self, pick: int, is_slow: bool) -> None:
        thread = self.pick(pick)
        if thread is not None:
            thread.is_slow = is_slow
            thread.beat()

    @rule(pick=PICKS)
    def lose_an_answer(self, pick: int) -> None:
        thread = self.pick(pick)
        if thread is not None and self.driver.group.book.find(thread.name) is not None:
            self.driver.beat(thread.name, thread.epoch, owned=thread.owned)

    @rule(pick=PICKS)
    def leave(self, pick: int) -> None:
        thread = self.pick(pick)
        if thread is not None and self.driver.group.book.find(thread.name) is not None:
            thread.leave()
            self.threads.remove(thread)

    @rule(pick=PICKS)
    def die(self, pick: int) -> None:
        """Nothing more is heard of it; its tasks wait for its session to end."""
        thread = self.pick(pick)
        if thread is not None:
            self.threads.remove(thread)

    @rule(duration_ms=st.sampled_from([1_000, 10_000, SESSION_MS]))
    def wait(self, duration_ms: int) -> None:
        for thread in self.threads:
            thread.is_slow = False
        self.driver.wait(duration_ms, *self.threads)

    @rule()
    def restart(self) -> None:
        self.driver.restart()

    @rule(standbys=st.integers(0, 2))
    def keep_other_standbys(self, standbys: int) -> None:
        limits = StreamsGroupLimits(initial_rebalance_delay_ms=0, standbys=standbys)
        self.driver.limits = self.driver.group.limits = limits

    @rule()
    def grow(self) -> None:
        """All at once, as an operator must: else the topics do not fit one another."""
        if self.partitions < PARTITIONS_MAX:
            self.partitions += 1
            for name in ("words", "by-word", "counts"):
                self.driver.put_topic(topic(name, self.partitions))

    @invariant()
    def a_task_is_active_in_one_member_at_most(self) -> None:
        if not hasattr(self, "threads"):
            return
        owners = Counter(task for thread in self.threads for task in thread.owned.active)
        assert all(count == 1 for count in owners.values()), owners

    def teardown(self) -> None:
        """Left alone, every task has one owner, and nobody two tasks more than another."""
        if not getattr(self, "threads", None):
            return
        for thread in self.threads:
            thread.is_slow = False
        self.driver.wait(SESSION_MS + REBALANCE_MS + 10_000, *self.threads)
        told = Counter(task for thread in self.threads for task in thread.owned.active)
        assert told == Counter(all_tasks(self.partitions))
        sizes = [len(thread.owned.active) for thread in self.threads]
        assert max(sizes) - min(sizes) <= 1
        for thread in self.threads:
            for other in self.threads:
                if thread is not other and thread.process_id == other.process_id:
                    assert not thread.owned.standby & (other.owned.active | other.owned.standby)


TestStreamsGroups = StreamsGroupMachine.TestCase
TestStreamsGroups.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
