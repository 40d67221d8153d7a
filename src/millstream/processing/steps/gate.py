"""A gate before the sources of a script's query: what was added goes in when the script says so.

The query of a script runs on between its steps, as starting one takes longer than most batches.
Spark asks its sources one after another where their topics end, again and again, each in a process
of its own. Behind the gate all of them see a new turn in the same round of questions, or none does:
the source that is asked first in a round leads, the others follow it. So the records of a turn are
in one batch, whatever the timing.

    gate/turn        the number of the last turn that the script has opened
    gate/leader      the source that is asked first; made by it, in its first round
    gate/taken-<n>   made by the leader when it has seen turn n

Knows no Spark: `gated_source.py` does.
"""

import shutil
from pathlib import Path

CLOSED = 0


def gate_of(checkpoint: str | Path) -> Path:
    """Beside the checkpoint."""
    return Path(checkpoint).with_name("gate")


class Gate:
    """The side of the script. A new one is closed, and has no leader."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turn = CLOSED
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._write()

    def open(self) -> None:
        """Let in all that is there now."""
        self._turn += 1
        self._write()

    def _write(self) -> None:
        new = self._directory / "turn.new"
        new.write_text(str(self._turn))
        new.rename(self._directory / "turn")


class Entrance:
    """The side of a source."""

    def __init__(self, directory: Path, source: str) -> None:
        self._directory = directory
        self._source = source
        self._taken = CLOSED

    def may_enter(self) -> bool:
        """Asked in every round: whether there is a new turn, and the leader has seen it."""
        is_leading = self._leader() == self._source
        turn = int((self._directory / "turn").read_text())
        mark = self._directory / f"taken-{turn}"
        if turn == self._taken or not (is_leading or mark.exists()):
            return False
        if is_leading:
            mark.touch()
        self._taken = turn
        return True

    def _leader(self) -> str:
        named = self._directory / "leader"
        if not named.exists():
            named.write_text(self._source)
        return named.read_text()
