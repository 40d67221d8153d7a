"""The power goes out at every step of a busy log, and the disk keeps what it likes of the rest.

What was reported durable is there afterwards, in order and once; a producer that sends its last
batches again changes nothing; the broker's own state is that of some put, never half of one.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millstream.log.config import LogConfig
from millstream.log.log_directory import LogDirectory
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import read_header
from millstream.log.state_log import StateLog
from tests.support.batches import NOW_MS, batch, read_batches, read_records, values
from tests.support.simulated_disk import PowerCut, SimulatedDisk, Survival

ORDERS = ("orders", 0)
STATE = ("state", 0)
TOPIC_ID = bytes(16)
PRODUCER_ID = 7
RETRIES = 5
STRICT = LogConfig(segment_bytes=900, index_interval_bytes=200)
RELAXED = LogConfig(segment_bytes=900, index_interval_bytes=200, flush_messages=1 << 30)
STATE_CONFIG = LogConfig(segment_bytes=600)


@dataclass
class Sent:
    """A batch that the idempotent producer sent, and where it stands if that was answered."""

    sequence: int
    values: list[bytes]
    base_offset: int | None = None


@dataclass
class Promises:
    """What callers were told, so what must be true after any crash."""

    # Per offset the value that was appended there, in this life of the log or an earlier one.
    stored: dict[int, bytes] = field(default_factory=dict)
    synced_offset: int = 0
    start_offset: int = 0
    # Where the start may be, though nobody was told yet.
    start_offset_max: int = 0
    sent: list[Sent] = field(default_factory=list)
    states: list[dict[bytes, bytes]] = field(default_factory=lambda: [{}])
    durable_state: int = 0
    epoch: int = -1


class Workload:
    """A log and a state in one data directory, used in a random but repeatable way."""

    def __init__(self, path: Path, disk: SimulatedDisk, config: LogConfig, seed: int) -> None:
        self.path, self.disk, self.config = path, disk, config
        self.random = random.Random(seed)
        self.promises = Promises()
        self.now_ms = NOW_MS
        self.count = 0
        self.directory: LogDirectory | None = None

    def run(self, turns: int) -> None:
        """Raises PowerCut wherever the disk is told to."""
        try:
            self.open()
            for _ in range(turns):
                self.now_ms += 10
                self.turn()
            self.close()
        finally:
            if self.directory is not None:
                self.directory.abandon()

    def open(self) -> None:
        self.directory = LogDirectory(self.path, disk=self.disk)
        assert self.directory.epoch > self.promises.epoch
        self.promises.epoch = self.directory.epoch
        self.log = open_orders(self.directory, self.config, self.now_ms)
        self.state = open_state(self.directory, self.now_ms)

    def close(self) -> None:
        assert self.directory is not None
        directory, self.directory = self.directory, None
        try:
            assert directory.close(now_ms=self.now_ms)
        except PowerCut:
            directory.abandon()
            raise
        self.note_synced()

    def turn(self) -> None:
        assert self.directory is not None
        choice = self.random.random()
        if choice < 0.30:
            self.append_plain()
        elif choice < 0.55:
            self.append_idempotent()
        elif choice < 0.72:
            self.log.sync(now_ms=self.now_ms)
        elif choice < 0.75:
            self.log.roll(now_ms=self.now_ms)
        elif choice < 0.79:
            self.promises.start_offset_max = self.log.high_watermark
            self.log.config = retaining(self.config, self.random.choice([1200, 2500]))
            self.log.apply_retention(now_ms=self.now_ms)
            self.promises.start_offset = self.log.start_offset
        elif choice < 0.83:
            self.delete_records()
        elif choice < 0.94:
            self.put()
        elif choice < 0.96:
            self.state.rewrite(now_ms=self.now_ms)
        elif choice < 0.98:
            self.directory.save_recovery_points()
        else:
            self.close()
            self.open()
        self.note_synced()

    def append_plain(self) -> None:
        contents = self.contents()
        self.note_stored(self.log.end_offset, contents)
        self.log.append(batch(*contents, timestamp_ms=self.now_ms), now_ms=self.now_ms)

    def append_idempotent(self) -> None:
        last = self.promises.sent[-1] if self.promises.sent else Sent(0, [])
        sent = Sent(last.sequence + len(last.values), self.contents())
        self.promises.sent.append(sent)
        self.note_stored(self.log.end_offset, sent.values)
        sent.base_offset = send(self.log, sent, now_ms=self.now_ms)

    def contents(self) -> list[bytes]:
        self.count += 1
        return [
            b"%d.%d " % (self.count, number) + bytes(self.random.randint(0, 150))
            for number in range(self.random.randint(1, 4))
        ]

    def note_stored(self, base_offset: int, contents: list[bytes]) -> None:
        for number, content in enumerate(contents):
            self.promises.stored[base_offset + number] = content

    def delete_records(self) -> None:
        assert self.directory is not None
        start = self.random.randint(self.log.start_offset, self.log.high_watermark)
        self.promises.start_offset_max = max(start, self.promises.start_offset_max)
        self.directory.delete_records(ORDERS, start)
        self.promises.start_offset = self.log.start_offset

    def put(self) -> None:
        changes: dict[bytes, bytes | None] = {
            b"key %d" % self.random.randint(0, 5): self.random.choice([None, b"%d" % self.now_ms])
            for _ in range(3)
        }
        new = dict(self.promises.states[-1])
        for key, value in changes.items():
            new.pop(key, None)
            if value is not None:
                new[key] = value
        self.promises.states.append(new)
        self.state.put(changes.items(), now_ms=self.now_ms)
        if self.random.random() < 0.5:
            self.state.log.sync(now_ms=self.now_ms)

    def note_synced(self) -> None:
        assert self.log.synced_offset >= self.promises.synced_offset
        self.promises.synced_offset = self.log.synced_offset
        if self.config is STRICT:
            assert self.log.high_watermark == self.log.synced_offset
        if not self.state.log.has_unsynced:
            self.promises.durable_state = len(self.promises.states) - 1


def retaining(config: LogConfig, retention_bytes: int) -> LogConfig:
    return LogConfig(
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
        flush_messages=config.flush_messages,
        retention_bytes=retention_bytes,
    )


def open_orders(directory: LogDirectory, config: LogConfig, now_ms: int) -> PartitionLog:
    return directory.open_partition(ORDERS, config, topic_id=TOPIC_ID, now_ms=now_ms)


def open_state(directory: LogDirectory, now_ms: int) -> StateLog:
    directory.open_partition(STATE, STATE_CONFIG, topic_id=TOPIC_ID, now_ms=now_ms)
    return StateLog(directory, STATE)


def send(log: PartitionLog, sent: Sent, *, now_ms: int) -> int:
    content = batch(
        *sent.values, timestamp_ms=now_ms, producer_id=PRODUCER_ID, sequence=sent.sequence
    )
    return log.append(content, now_ms=now_ms).base_offset


def run_until_cut(path: Path, config: LogConfig, *, seed: int, step: int, turns: int) -> Workload:
    disk = SimulatedDisk(path)
    disk.cut_power_at(step)
    workload = Workload(path, disk, config, seed)
    with suppress(PowerCut):
        workload.run(turns)
    return workload


def count_steps(path: Path, config: LogConfig, *, seed: int, turns: int) -> int:
    return run_until_cut(path, config, seed=seed, step=1 << 30, turns=turns).disk.steps


def check_after(workload: Workload, disk: SimulatedDisk) -> None:
    """Everything that was promised holds on what the power cut left of the disk."""
    directory = LogDirectory(workload.path, disk=disk)
    try:
        assert directory.epoch >= workload.promises.epoch
        log = open_orders(directory, workload.config, workload.now_ms)
        check_records(log, workload.promises)
        check_epochs(log)
        check_state(open_state(directory, workload.now_ms), workload.promises)
        found = values(read_records(log)), dict(StateLog(directory, STATE))
        start_offset = log.start_offset
    finally:
        directory.abandon()
    again = LogDirectory(workload.path, disk=disk)
    try:
        log = open_orders(again, workload.config, workload.now_ms)
        assert (values(read_records(log)), dict(open_state(again, NOW_MS))) == found
        assert log.start_offset == start_offset
        check_retries(log, workload.promises)
        check_epochs(log)
    finally:
        again.abandon()


def check_records(log: PartitionLog, promises: Promises) -> None:
    assert promises.start_offset <= log.start_offset
    assert log.start_offset <= max(promises.start_offset, promises.start_offset_max)
    assert log.end_offset >= promises.synced_offset
    assert log.high_watermark == log.end_offset
    for offset, record in enumerate(read_records(log), start=log.start_offset):
        assert (record.offset, record.value) == (offset, promises.stored[offset])


def check_retries(log: PartitionLog, promises: Promises) -> None:
    """The producer does not know what arrived: it sends its last batches again, in order."""
    end_offset = log.end_offset
    for sent in promises.sent[-RETRIES:]:
        survived = sent.base_offset is not None and sent.base_offset < end_offset
        base_offset = send(log, sent, now_ms=NOW_MS)
        if survived:
            assert base_offset == sent.base_offset
    log.sync(now_ms=NOW_MS)
    found = values(read_records(log))
    assert len(set(found)) == len(found)
    if promises.sent and log.start_offset <= (promises.sent[-1].base_offset or 0):
        assert promises.sent[-1].values[-1] in found


def check_epochs(log: PartitionLog) -> None:
    epochs = [read_header(each).leader_epoch for each in read_batches(log)]
    assert epochs == sorted(epochs)
    assert log.epochs.is_increasing
    for each in read_batches(log):
        header = read_header(each)
        assert log.epochs.at(header.base_offset) == header.leader_epoch


def check_state(state: StateLog, promises: Promises) -> None:
    assert dict(state) in promises.states[promises.durable_state :]


SURVIVALS = [(survival, 0) for survival in Survival] + [(Survival.TORN, 1), (Survival.PREFIX, 1)]


def left_by_a_cut(
    disk: SimulatedDisk, *, seed: int, survivals: Sequence[tuple[Survival, int]] = SURVIVALS
) -> Iterator[tuple[str, SimulatedDisk]]:
    """What may be left, and its name. Where little was unsynced, much is the same: once will do."""
    seen = set()
    for survival, number in survivals:
        left = disk.after_power_cut(survival, seed=seed + number)
        if (files := left.files()) not in seen:
            seen.add(files)
            yield f"left: {survival.value} ({number})", left


def sweep(path: Path, config: LogConfig, *, seed: int, turns: int) -> Iterator[str]:
    """Cut the power at every step; yields the names of the cases, for the message of a failure."""
    for step in range(count_steps(path, config, seed=seed, turns=turns) + 1):
        workload = run_until_cut(path, config, seed=seed, step=step, turns=turns)
        for name, left in left_by_a_cut(workload.disk, seed=step):
            yield f"seed {seed}, step {step}, {name}"
            check_after(workload, left)


def check_all(cases: Iterator[str]) -> None:
    last: deque[str] = deque(maxlen=1)
    try:
        last.extend(cases)
    except Exception as error:
        raise AssertionError(f"failed in case: {last[0]}") from error


@pytest.mark.parametrize("config", [STRICT, RELAXED], ids=["strict", "relaxed"])
def test_what_was_reported_durable_survives_a_power_cut_at_every_step(
    lock_path: Path, config: LogConfig
) -> None:
    check_all(sweep(lock_path, config, seed=1, turns=32))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2])  # about a minute; any other seed does as well
@pytest.mark.parametrize("config", [STRICT, RELAXED], ids=["strict", "relaxed"])
def test_it_survives_in_longer_histories_too(lock_path: Path, config: LogConfig, seed: int) -> None:
    check_all(sweep(lock_path, config, seed=seed, turns=90))


def cut_again(path: Path, *, seed: int, turns: int, every: int) -> Iterator[str]:
    """Cut the power, and then at every step of the recovery from that."""
    for step in range(every, count_steps(path, STRICT, seed=seed, turns=turns), every):
        workload = run_until_cut(path, STRICT, seed=seed, step=step, turns=turns)
        for second in range(1 << 30):
            disk = workload.disk.after_power_cut(Survival.TORN, seed=step)
            disk.cut_power_at(second)
            yield f"seed {seed}, step {step}, then {second}"
            try:
                recover(workload, disk)
            except PowerCut:
                for _, left in left_by_a_cut(disk, seed=second):
                    check_after(workload, left)
            else:
                break


def recover(workload: Workload, disk: SimulatedDisk) -> None:
    directory = LogDirectory(workload.path, disk=disk)
    try:
        open_orders(directory, workload.config, workload.now_ms)
        open_state(directory, workload.now_ms)
    finally:
        directory.abandon()


def test_a_power_cut_during_recovery_loses_nothing_more(lock_path: Path) -> None:
    check_all(cut_again(lock_path, seed=1, turns=32, every=60))


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_power_cut_during_any_recovery_loses_nothing_more(lock_path: Path) -> None:
    check_all(cut_again(lock_path, seed=2, turns=60, every=11))


# --- a kill, then a power cut -------------------------------------------------------------------


Shown = dict[int, bytes | None]


def kill_and_cut(
    path: Path, config: LogConfig, *, seed: int, turns: int, every: int
) -> Iterator[str]:
    """The process dies and its page cache lives; the next one recovers, shows what it found, and
    then the power goes. The same once more with one that also writes."""
    for step in range(0, count_steps(path, config, seed=seed, turns=turns), every):
        workload = run_until_cut(path, config, seed=seed, step=step, turns=turns)
        workload.disk.restore_power()
        for writes, survivals in ((False, SURVIVALS), (True, [(Survival.NOTHING, 0)])):
            yield f"seed {seed}, killed at step {step}, writes afterwards: {writes}"
            shown, state = recover_and_show(workload, writes=writes)
            for name, left in left_by_a_cut(workload.disk, seed=step, survivals=survivals):
                yield f"seed {seed}, killed at step {step}, {name}"
                check_shown(workload, left, shown, state)


def recover_and_show(workload: Workload, *, writes: bool) -> tuple[Shown, dict[bytes, bytes]]:
    """What a client saw after the restart; and a retry was told that its batch is there."""
    directory = LogDirectory(workload.path, disk=workload.disk)
    try:
        log = open_orders(directory, workload.config, workload.now_ms)
        state = dict(open_state(directory, workload.now_ms))
        if workload.promises.sent and (last := workload.promises.sent[-1]).base_offset is not None:
            assert send(log, last, now_ms=NOW_MS) == last.base_offset, "stored before the kill"
        if writes:
            log.append(batch(b"after the recovery"), now_ms=NOW_MS)
            log.sync(now_ms=NOW_MS)
        return {record.offset: record.value for record in read_records(log)}, state
    finally:
        directory.abandon()


def check_shown(
    workload: Workload, disk: SimulatedDisk, shown: Shown, state: dict[bytes, bytes]
) -> None:
    directory = LogDirectory(workload.path, disk=disk)
    try:
        log = open_orders(directory, workload.config, workload.now_ms)
        found = {record.offset: record.value for record in read_records(log)}
        assert shown.items() <= found.items()
        assert dict(open_state(directory, workload.now_ms)) == state
    finally:
        directory.abandon()


@pytest.mark.parametrize("config", [STRICT, RELAXED], ids=["strict", "relaxed"])
def test_what_a_recovery_has_shown_survives_a_power_cut(lock_path: Path, config: LogConfig) -> None:
    check_all(kill_and_cut(lock_path, config, seed=1, turns=32, every=4))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("config", [STRICT, RELAXED], ids=["strict", "relaxed"])
def test_what_any_recovery_has_shown_survives_a_power_cut(
    lock_path: Path, config: LogConfig
) -> None:
    check_all(kill_and_cut(lock_path, config, seed=2, turns=60, every=1))
