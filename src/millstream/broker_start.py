"""How a broker is started here, for errors that find none: with the data that is there."""

import shlex
from pathlib import Path

from millstream.log.log_directory import META_FILE
from millstream.settings import BrokerSettings

DATA_NAMED_MAX = 3


def start_command() -> str:
    """With the data of an application that was run in this directory, and not with none. A
    directory without a log is not named: an application whose broker was another process has one.
    """
    data = BrokerSettings().data
    found = [] if data.exists() else sorted(Path().glob(f"*{data.suffix}/{META_FILE}"))
    found = [one.parent for one in found[:DATA_NAMED_MAX]]
    commands = [f"millstream broker --data {shlex.quote(str(one))}" for one in found]
    return "` or `".join(commands or ["millstream broker"])
