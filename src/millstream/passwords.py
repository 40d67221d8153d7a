"""Where passwords come from: a file that nobody else can read, or a person at a terminal.

Never an option of a command, which every user of the machine can see, and never the environment,
which children inherit and logs quote.
"""

import getpass
import sys
from functools import cache
from pathlib import Path

from millstream.base.errors import Rejected

# Owner and group may have rights to it, others none; as private keys.
FORBIDDEN_MODE = 0o007
STDIN = Path("-")


class NoPassword(Rejected):
    def __init__(self, *, user: str) -> None:
        super().__init__(
            f"the password of {user} is missing, and there is no terminal to ask at. Put it into a "
            "file and name that (password_file, MILLSTREAM_PASSWORD_FILE or --password-file)"
        )
        self.user = user


class UnusablePasswordFile(Rejected):
    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class PasswordsDiffer(Rejected):
    def __init__(self) -> None:
        super().__init__("the two passwords are not the same; nothing was changed")


def read_password(path: Path) -> str:
    """The first line of the file; `-` is standard input."""
    if path == STDIN:
        return _first_line(sys.stdin.readline(), path)
    try:
        if path.stat().st_mode & FORBIDDEN_MODE:
            reason = "every user of the machine can read this password; chmod 600 it"
            raise UnusablePasswordFile(path=path, reason=reason)
        return _first_line(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        raise UnusablePasswordFile(path=path, reason="no such file") from None
    except UnicodeDecodeError:
        raise UnusablePasswordFile(path=path, reason="not UTF-8 text") from None


def _first_line(text: str, path: Path) -> str:
    password = text.split("\n", 1)[0].rstrip("\r")
    if not password:
        raise UnusablePasswordFile(path=path, reason="its first line is empty")
    return password


@cache
def password_of(user: str, path: Path | None) -> str:
    """For a login. A person is asked once, however many clients a command needs."""
    if path is not None:
        return read_password(path)
    return _ask(user, f"Password of {user}: ")


def new_password(user: str, path: Path | None) -> str:
    """For a new user. A person types it twice."""
    if path is not None:
        return read_password(path)
    password = _ask(user, f"New password of {user}: ")
    if _ask(user, "The same again: ") != password:
        raise PasswordsDiffer
    return password


def _ask(user: str, prompt: str) -> str:
    if not sys.stdin.isatty():
        raise NoPassword(user=user)
    password = getpass.getpass(prompt, stream=sys.stderr)
    if not password:
        raise NoPassword(user=user)
    return password
