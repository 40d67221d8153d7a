"""Asks for a broker's groups as the console does, again and again, from several threads.

python -m tests.faults.group_asker BOOTSTRAP

Each line is the time by the machine's monotonic clock, what was asked, and "ok" or the error.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from millstream.app import App
from millstream.base.errors import MillstreamError
from millstream.commands.connecting import GroupNotFound
from millstream.commands.console.shown_app import ShownApp

PAUSE_SECONDS = 0.05


def ask_for_ever(what: str, ask: Callable[[], object]) -> None:
    while True:
        try:
            ask()
            said = "ok"
        except GroupNotFound:
            said = "ok"
        except MillstreamError as error:
            said = type(error).__name__
        sys.stdout.write(f"{time.monotonic():.3f} {what} {said}\n")
        sys.stdout.flush()
        time.sleep(PAUSE_SECONDS)


def main(bootstrap: str) -> None:
    with tempfile.TemporaryDirectory() as data:
        app = App("asker", data=Path(data), brokers=bootstrap)
        shown = ShownApp(app)
        questions: dict[str, Callable[[], object]] = {
            "groups": lambda: shown.groups.seen(shown.groups.names()),
            "topics": lambda: shown.topics.partitions(),
        }
        for number in range(3):  # names of their own: none waits for another one's answer
            questions[f"detail-{number}"] = partial(shown.groups.detail, f"none-{number}")
        threads = [threading.Thread(target=ask_for_ever, args=one) for one in questions.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(sys.argv[1])
