"""What was meant by a name that nothing has. Pure."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """`otherwise` where no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]}?" if near else otherwise


def there_are(known: Iterable[str]) -> str:
    return ", ".join(sorted(known)) or "none"
