"""What an application asks for, checked where it asks: names, numbers of seconds, counts, lists.

Pure. Without it a typing error would be found by the broker, at the first put, or by nobody.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.base.errors import Rejected

# Of a topic, as Kafka has it; the suffix of the dead-letter topic must fit, too.
NAME = re.compile(r"[a-zA-Z0-9._-]+")
TOPIC_NAME_LENGTH_MAX = 249
DEAD_SUFFIX = ".dead"
NAME_LENGTH_MAX = TOPIC_NAME_LENGTH_MAX - len(DEAD_SUFFIX)
# Of "_receipts.<app>.<view>.changes.<generation>" at least a third is for the view.
APP_NAME_LENGTH_MAX = 150
ALLOWED_NAME = "give letters, digits, '.', '_' and '-'"


class BadTerms(Rejected):
    """A queue was asked for, or used, in a way that cannot work."""


def queue_name(name: object) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in (".", ".."):
        raise BadTerms(f"{name!r} cannot be a queue's name: {ALLOWED_NAME}")
    if len(name) > NAME_LENGTH_MAX:
        raise BadTerms(f"a queue's name of {len(name)} letters: give {NAME_LENGTH_MAX} at most")
    if name.endswith(DEAD_SUFFIX):
        live = name.removesuffix(DEAD_SUFFIX)
        raise BadTerms(f"{name!r} is where the dead letters of queue {live!r} are: it is no queue")
    return name


def app_name(name: object) -> str:
    """It names a directory: neither hidden nor elsewhere."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or name.startswith("."):
        raise BadTerms(f"{name!r} cannot be an app's name: {ALLOWED_NAME}, not '.' first")
    if len(name) > APP_NAME_LENGTH_MAX:
        raise BadTerms(f"an app's name of {len(name)} letters: give {APP_NAME_LENGTH_MAX} at most")
    return name


def seconds(term: str, value: object, *, least: float, most: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return value  # which is not NaN, either: that is within nothing
    raise BadTerms(f"{term}={value!r}: give seconds, a number from {least:g} to {most:g}")


def count(term: str, value: object, *, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadTerms(f"{term}={value!r}: give a whole number from {least} to {most}")
    return value


def several(values: Iterable[Any]) -> Iterable[Any]:
    """One value that happens to have parts is not several."""
    if isinstance(values, str | bytes | bytearray | Mapping) or not isinstance(values, Iterable):
        kind = type(values).__name__
        raise BadTerms(f"put_many was given one {kind}: give a list of values, or put() the one")
    return values
