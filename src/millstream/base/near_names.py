"""Names in messages: what was meant by one that nothing has, and a few of many. Pure."""

import difflib
from collections.abc import Iterable, Sequence

NAMES_SHOWN_MAX = 10


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """`otherwise` where no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]}?" if near else otherwise


def there_are(known: Iterable[str]) -> str:
    return ", ".join(sorted(known)) or "none"


def some_of(names: Sequence[str]) -> str:
    """The first ones, and how many there are besides."""
    rest = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {rest} more" if rest > 0 else "")
