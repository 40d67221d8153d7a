"""Why one value does not fit its schema. Readers and writers of rows raise it with the field."""

from millstream.base.errors import Rejected

SHOWN_CHARACTERS_MAX = 60


class Unfit(Rejected):
    """`path` leads to the field: `customer.tags[]`; it is empty for the value as a whole."""

    def __init__(self, problem: str, *, path: str = "") -> None:
        super().__init__(f"field `{path}`: {problem}" if path else problem)
        self.problem, self.path = problem, path

    def inside(self, name: str) -> "Unfit":
        """The same, seen from the field that contains it."""
        joined = name + self.path if self.path.startswith("[]") else f"{name}.{self.path}"
        return Unfit(self.problem, path=joined if self.path else name)


def shown(value: object) -> str:
    """A value in a message: not more of it than one can read."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "..."


def too_large(expected: object, found: object) -> Unfit:
    return Unfit(f"{shown(found)} does not fit {expected}")
