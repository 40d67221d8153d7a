"""Where wrapping keys are kept: outside of the log, so that neither it nor its backups open.

`KeyDirectory` keeps each in a file of its own, for its owner's eyes only. What another place must
offer to take its part (a secret store, a KMS) is `KeyStore`: three calls on names and bytes.
Knows nothing of subjects or topics.
"""

import os
import stat
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from millstream.base.disk import RealDisk, Unwritable
from millstream.base.errors import Corrupt, Rejected

STORED_KEY_BYTES: Final = 32
SUFFIX: Final = ".key"
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
FOR_OTHERS: Final = 0o077


class KeyStore(Protocol):
    """Keeps secrets of 32 bytes by names that we choose. What it has kept it gives to every process
    of the application; what it has destroyed it gives to nobody, ever."""

    place: str

    def load(self, name: str) -> bytes | None: ...

    def keep(self, name: str, key: bytes) -> bytes:
        """Durable when it returns. If there is one of this name, that one stays: what is kept is
        returned."""

    def destroy(self, name: str) -> None:
        """For good; one that is not there is fine."""


class KeyringExposed(Rejected):
    def __init__(self, *, path: Path, mode: int) -> None:
        super().__init__(
            f"{path} can be read by others (mode {mode:o}): it has keys to personal data. "
            f"chmod {'700' if path.is_dir() else '600'} it, and think of who may have read it"
        )
        self.path, self.mode = path, mode


class BadKeyFile(Corrupt):
    def __init__(self, *, path: Path, size_bytes: int) -> None:
        super().__init__(
            f"{path} has {size_bytes} bytes, and a key has {STORED_KEY_BYTES}: put it back from "
            "the copy that you have of the keyring"
        )
        self.path, self.size_bytes = path, size_bytes


class KeyDirectory:
    """A `KeyStore` of files. Safe for several processes of one machine at the same time."""

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, str(path)
        self._disk = RealDisk()

    def load(self, name: str) -> bytes | None:
        if not self.path.exists():
            return None
        self._check_mode(self.path)
        file = self._file(name)
        try:
            self._check_mode(file)
            key = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unwritable(path=file, reason=os.strerror(error.errno or 0)) from error
        if len(key) != STORED_KEY_BYTES:
            raise BadKeyFile(path=file, size_bytes=len(key))
        return key

    def keep(self, name: str, key: bytes) -> bytes:
        """Whole or not at all: it gets its name when it is on disk."""
        self._make()
        temporary = self.path / f"{name}.{uuid4().hex}.tmp"
        try:
            self._write_new(temporary, key)
            try:
                os.link(temporary, self._file(name))
            except FileExistsError:
                pass  # the first one counts
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise Unwritable(path=self.path, reason=os.strerror(error.errno or 0)) from error
        self._disk.sync_directory(self.path)
        kept = self.load(name)
        if kept is None:
            raise Unwritable(path=self._file(name), reason="it was destroyed as it was made")
        return kept

    def destroy(self, name: str) -> None:
        """Overwritten where it is, then unlinked: what a file system leaves behind is no key, if it
        overwrites in place (docs/not_supported.md). Copies of a crash in `keep` go with it."""
        if not self.path.exists():
            return
        for file in (self._file(name), *self.path.glob(f"{name}.*.tmp")):
            self._wipe(file)
        self._disk.sync_directory(self.path)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{SUFFIX}"

    def _make(self) -> None:
        try:
            self.path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise Unwritable(path=self.path, reason=os.strerror(error.errno or 0)) from error
        self._check_mode(self.path)
        self._disk.sync_directory(self.path.parent)

    def _check_mode(self, path: Path) -> None:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & FOR_OTHERS:
            raise KeyringExposed(path=path, mode=mode)

    def _write_new(self, path: Path, key: bytes) -> None:
        number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        try:
            os.write(number, key)
            os.fsync(number)
        finally:
            os.close(number)

    def _wipe(self, path: Path) -> None:
        try:
            number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unwritable(path=path, reason=os.strerror(error.errno or 0)) from error
        try:
            os.pwrite(number, os.urandom(os.fstat(number).st_size), 0)
            os.fsync(number)
        finally:
            os.close(number)
        path.unlink(missing_ok=True)
