"""`millstream` and `python -m millstream`.

Imports nothing heavy before it has seen to it that Ctrl-C, meanwhile, leaves no traceback.
"""

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130  # as in cli.EXIT_CODES, which is not imported yet


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)  # nothing was opened or printed yet


def main() -> None:
    # A shell lets its background jobs ignore SIGINT: that stays.
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, _leave)
    from millstream.cli import main as run

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:  # before a command has begun, or after it has ended
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
