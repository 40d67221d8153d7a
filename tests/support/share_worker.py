"""One member of a share group as a process: takes records, settles each by its number, says so.

    python -m tests.support.share_worker BOOTSTRAP GROUP TOPIC SEED

It prints `try KIND NUMBER...` before it commits what it says of the records of one poll, and
`done KIND NUMBER...` for those that the broker has answered with success. Some numbers are bad:
they are always rejected, or always released. Of the others it releases some, and now and then the
process is gone in the middle of it. It runs until it is killed.
"""

import os
import random
import sys
from collections import defaultdict

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
NAMES = {ACCEPT: "accept", RELEASE: "release", REJECT: "reject"}
RELEASED_SHARE = 0.1
CRASH_SHARE = 0.02  # of polls
COMMIT_WITHIN_S = 5.0


def is_always_rejected(number: int) -> bool:
    return number % 20 == 7


def is_always_released(number: int) -> bool:
    return number % 20 == 3


def is_bad(number: int) -> bool:
    return is_always_rejected(number) or is_always_released(number)


class Worker:
    def __init__(self, bootstrap: str, group: str, topic: str, seed: str) -> None:
        self._random = random.Random(seed)
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def run(self) -> None:
        while True:
            messages = [one for one in self._consumer.poll(0.2) if one.error() is None]
            if messages:
                self._settle(messages)

    def _settle(self, messages: list[Message]) -> None:
        said: dict[AcknowledgeType, list[int]] = defaultdict(list)
        for message in messages:
            number = int(message.value() or b"")
            kind = self._choose(number)
            said[kind].append(number)
            self._consumer.acknowledge(message, kind)
        report("try", said)
        if self._random.random() < CRASH_SHARE:
            os._exit(1)
        if self._commit():
            report("done", said)

    def _choose(self, number: int) -> AcknowledgeType:
        if is_always_rejected(number):
            return REJECT
        if is_always_released(number) or self._random.random() < RELEASED_SHARE:
            return RELEASE
        return ACCEPT

    def _commit(self) -> bool:
        """Whether all of it was answered with success."""
        try:
            errors = self._consumer.commit_sync(COMMIT_WITHIN_S)
        except KafkaException:
            return False
        return bool(errors) and all(error is None for error in errors.values())


def report(event: str, said: dict[AcknowledgeType, list[int]]) -> None:
    """One write, so that a crash leaves whole lines."""
    lines = [f"{event} {NAMES[kind]} {' '.join(map(str, said[kind]))}\n" for kind in said]
    os.write(1, "".join(lines).encode())


if __name__ == "__main__":
    Worker(*sys.argv[1:5]).run()
