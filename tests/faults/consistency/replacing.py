"""Replacing a function or a number of the package in this process, loudly if it is not there."""

from collections.abc import Callable
from typing import Any


class NothingToReplace(RuntimeError):
    """The package has changed: whoever replaces the function must look at it anew."""

    def __init__(self, *, owner: object, name: str) -> None:
        super().__init__(f"{owner!r} has no {name!r} of its own that could be replaced")
        self.owner, self.name = owner, name


def replace(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """`make` gets the function, and returns what stands in its place."""
    original = vars(owner).get(name)
    if not callable(original):
        raise NothingToReplace(owner=owner, name=name)
    setattr(owner, name, make(original))


def replace_number(owner: Any, name: str, number: int) -> None:
    if not isinstance(vars(owner).get(name), int):
        raise NothingToReplace(owner=owner, name=name)
    setattr(owner, name, number)
