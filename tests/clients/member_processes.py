"""Members of a group as processes, and whether two of them ever owned a partition at once."""

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

from tests.clients.protocol_member import config_of
from tests.clients.steps import Config, eventually


def now_ms() -> int:
    """As the members' own clock: it is the machine's."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Ownership:
    member: str
    partition: str
    start_ms: int
    end_ms: int


class MemberProcess:
    """One member; `events` are what it said, in order."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str, config: Config) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.killed_ms: int | None = None
        module = "tests.clients.protocol_member"
        command = [sys.executable, "-m", module, bootstrap, group, topic, json.dumps(dict(config))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.events.append(json.loads(line))

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def failures(self) -> list[str]:
        return [event["reason"] for event in list(self.events) if event["event"] == "failed"]

    @property
    def partitions(self) -> set[str]:
        if not self.is_running:
            return set()
        owned: set[str] = set()
        for event in list(self.events):
            if event["event"] == "assigned":
                owned |= set(event["partitions"])
            elif event["event"] == "revoked":
                owned -= set(event["partitions"])
        return owned

    def revocations(self) -> int:
        return sum(event["event"] == "revoked" for event in list(self.events))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed_ms = now_ms()
        self._reader.join()

    def leave(self) -> None:
        """As a consumer that is closed."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
            self._reader.join()

    def ownerships(self) -> list[Ownership]:
        """Each span in which it owned a partition; one that has not ended ends now."""
        open_since: dict[str, int] = {}
        spans = []
        for event in list(self.events):
            for partition in event["partitions"]:
                if event["event"] == "assigned":
                    open_since.setdefault(partition, event["ms"])
                elif partition in open_since:
                    start_ms = open_since.pop(partition)
                    spans.append(Ownership(self.name, partition, start_ms, event["ms"]))
        end_ms = self.killed_ms or now_ms()
        spans += [Ownership(self.name, part, ms, end_ms) for part, ms in open_since.items()]
        return spans


class Members:
    """All members of one test, the gone ones too; those left over are killed at its end."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._where = bootstrap, group, topic
        self.all: list[MemberProcess] = []

    def __enter__(self) -> "Members":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.all:
            if member.is_running:
                member.kill()

    def start(
        self, protocol: str = "consumer", *, topic: str | None = None, **config: Any
    ) -> MemberProcess:
        """A member of the new protocol, or of the classic one with the assignor of that name."""
        bootstrap, group, own_topic = self._where
        dotted = {name.replace("_", "."): value for name, value in config.items()}
        name = f"{protocol}-{len(self.all) + 1}"
        member = MemberProcess(
            name, bootstrap, group, topic or own_topic, {**config_of(protocol), **dotted}
        )
        self.all.append(member)
        return member

    def settle(self, *counts: tuple[MemberProcess, int], within_s: float = 30.0) -> None:
        """Wait until each has its number of partitions, and no two have the same."""

        def is_settled() -> bool:
            owned = [member.partitions for member, _ in counts]
            return [len(own) for own in owned] == [count for _, count in counts] and len(
                set().union(*owned)
            ) == sum(count for _, count in counts)

        what = f"{[(member.name, count) for member, count in counts]} partitions"
        eventually(is_settled, within_s=within_s, what=what)

    def check_single_owners(self) -> None:
        spans = sorted(
            (span for member in self.all for span in member.ownerships()),
            key=lambda span: (span.partition, span.start_ms),
        )
        for one, next_one in pairwise(spans):
            if one.partition == next_one.partition and one.member != next_one.member:
                assert one.end_ms <= next_one.start_ms, f"owned twice: {one} and {next_one}"
