"""How much text a member may say. All that is known of a member is one record: one that is larger
than the log of groups takes could never be stored, and its group never answer again."""

from collections.abc import Iterable

# In UTF-8 at most 32 MiB, half of what the log takes; names of 80,000 topics.
CHARACTERS_MAX = 8 << 20


def fault_of_length(what: str, texts: Iterable[str]) -> str | None:
    count = sum(map(len, texts))
    if count <= CHARACTERS_MAX:
        return None
    return f"{what} have {count} characters, at most {CHARACTERS_MAX} are allowed"
