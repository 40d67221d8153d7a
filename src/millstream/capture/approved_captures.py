"""The file with the captures that were approved on this machine: docs/formats/captures.md.

Written by `millstream capture add` and `approve`, read by `millstream capture run`. It is never
made from a topic: what is in it is what the operator typed, or was shown and confirmed.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from millstream.base.disk import RealDisk, replace_file
from millstream.base.errors import Corrupt
from millstream.capture.approval import Approval

FILE: Final = Path("millstream") / "captures.json"
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
ROOT: Final = 0


class DamagedApprovals(Corrupt):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} has the captures that were approved on this machine, and {problem}. Mend it, "
            "or remove it and approve them again: `millstream capture approve NAME`"
        )
        self.path = path


class ApprovedCaptures:
    """The file with what was approved, by log and name. `log`: the id of the cluster, so that a
    capture of one broker approves none of another. Read and written by commands."""

    def __init__(self, path: Path | None) -> None:
        self.path = default_path() if path is None else path

    def of(self, log: str, capture: str) -> Approval | None:
        found = self._read().get(log, {}).get(capture)
        try:
            return None if found is None else Approval.from_fields(found)
        except (KeyError, TypeError):
            raise DamagedApprovals(path=self.path, problem="an entry is incomplete") from None

    def keep(self, log: str, capture: str, approval: Approval) -> None:
        with self._held():
            kept = self._read()
            self._write(kept | {log: kept.get(log, {}) | {capture: approval.to_fields()}})

    def forget(self, log: str, capture: str) -> None:
        with self._held():
            kept = self._read()
            if kept.get(log, {}).pop(capture, None) is not None:
                self._write(kept)

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """One command at a time reads the file, changes it and writes it."""
        self.path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                _require_ours(self.path, os.fstat(file.fileno()))
                found = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError:
            raise DamagedApprovals(path=self.path, problem="it is not JSON") from None
        if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
            raise DamagedApprovals(path=self.path, problem="it is not a map of maps")
        return found

    def _write(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        replace_file(RealDisk(), self.path, json.dumps(kept, indent=2).encode() + b"\n")
        self.path.chmod(FILE_MODE)


def _require_ours(path: Path, status: os.stat_result) -> None:
    """What others may write, nobody approved: root may change any file anyway."""
    if status.st_mode & OTHERS_WRITE:
        raise DamagedApprovals(path=path, problem="others may write it")
    if status.st_uid not in (os.geteuid(), ROOT):
        raise DamagedApprovals(path=path, problem="it belongs to another user")


def default_path() -> Path:
    """Where programs of this user keep their configuration."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / FILE
