"""Whether an ALTER TABLE leaves the values of old rows as they are. Pure.

The binlog has the statement, and none of the rows that it rewrote. So the rule is the safe one: a
table is loaded again after any ALTER TABLE, unless every clause of the statement is one of those
below, which are known to change no value. A wrong guess costs a load, never a row.

Does not know what the table looks like: `source.py` compares that, besides.
"""

import re
from dataclasses import dataclass
from typing import Final

LITERAL: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"")
MASK: Final = re.compile(r"\x00(\d+)\x00")
INNERMOST: Final = re.compile(r"\([^()]*\)")
IDENTIFIER: Final = r"(?:\x00\d+\x00|[\w$]+)"
# What follows is a list of clauses. IGNORE is left out: it deletes rows.
HEAD: Final = re.compile(
    rf"ALTER\s+(?:ONLINE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?"
    rf"{IDENTIFIER}(?:\s*\.\s*{IDENTIFIER})?\s*(?:(?:WAIT\s+\d+|NOWAIT)\b)?",
    re.IGNORECASE,
)
OPTION: Final = (
    r"(?:COMMENT|AUTO_INCREMENT|ROW_FORMAT|KEY_BLOCK_SIZE|STATS_\w+|ALGORITHM|LOCK|MAX_ROWS"
    r"|MIN_ROWS|AVG_ROW_LENGTH|CHECKSUM|PAGE_\w+|PACK_KEYS|DELAY_KEY_WRITE|ENCRYPT\w+"
    r"|COMPRESSION|TRANSACTIONAL)\s*=?\s*\S+"
    # Of columns that are added later: only CONVERT TO rewrites those that are there.
    r"|(?:DEFAULT\s+)?(?:CHARACTER\s+SET|CHARSET|COLLATE)\s*=?\s*\S+"
    r"|ENGINE\s*=?\s*(?:INNODB|ARIA|MYISAM)"
)
HARMLESS: Final = re.compile(
    rf"""ADD\s+(?:CONSTRAINT\s+(?:{IDENTIFIER}\s+)?)?(?:UNIQUE|FULLTEXT|SPATIAL|FOREIGN|CHECK)\b.*
    | ADD\s+(?:INDEX|KEY)\b.*
    | (?:DROP|RENAME)\s+(?:INDEX|KEY)\b.*
    | DROP\s+FOREIGN\s+KEY\b.*
    | DROP\s+(?:CHECK|CONSTRAINT)\s+(?:IF\s+EXISTS\s+)?(?!PRIMARY\b){IDENTIFIER}
    | ALTER\s+(?:CHECK|CONSTRAINT)\s+{IDENTIFIER}\s+(?:NOT\s+)?ENFORCED
    | (?:ANALYZE|CHECK|OPTIMIZE|REBUILD)\s+PARTITION\b.*
    | DROP\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?(?!PRIMARY\b){IDENTIFIER}(?:\s+(?:RESTRICT|CASCADE))?
    | ALTER\s+(?:INDEX|KEY)\b.*
    | ALTER\s+(?:COLUMN\s+)?{IDENTIFIER}\s+(?:SET|DROP)\s+DEFAULT\b.*
    | (?:ENABLE|DISABLE)\s+KEYS
    | FORCE
    | (?:(?:{OPTION})\s*)+""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
ADDED: Final = re.compile(
    rf"ADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?"
    rf"(?!(?:PARTITION|PERIOD|SYSTEM|PRIMARY|CONSTRAINT)\b)({IDENTIFIER})\s+(.+)",
    re.IGNORECASE | re.DOTALL,
)
# A new column with one of these is not null in old rows, or may not be.
FILLS: Final = re.compile(
    r"\b(?:NOT\s+NULL|DEFAULT(?!\s+NULL\b)|AS|GENERATED|AUTO_INCREMENT|SERIAL|PRIMARY|KEY"
    r"|TIMESTAMP|VERSIONING|ROW)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """`added`: the columns that it adds, which are null in old rows if `keeps_values`."""

    keeps_values: bool
    added: frozenset[str] = frozenset()


REWRITES: Final = Alteration(keeps_values=False)


def alteration_of(statement: str) -> Alteration:
    """Of a statement without comments, as `statements.plain` gives it."""
    names: list[str] = []

    def masked(found: re.Match[str]) -> str:
        names.append((found[1] or "").replace("``", "`") or (found[2] or "").replace('""', '"'))
        return f"\x00{len(names) - 1}\x00"

    text = _without_parentheses(QUOTED.sub(masked, LITERAL.sub("x", statement)))
    head = HEAD.match(text.strip())
    if head is None:
        return REWRITES
    clauses = [clause.strip() for clause in text.strip()[head.end() :].split(",")]
    added = [found for clause in clauses if (found := _added(clause, names))]
    harmless = [_is_harmless(clause, names) or _added(clause, names) for clause in clauses]
    return Alteration(keeps_values=all(harmless), added=frozenset(added))


def _is_harmless(clause: str, names: list[str]) -> bool:
    """MySQL drops the key by its name, too: DROP CONSTRAINT `PRIMARY`."""
    is_of_key = any(names[int(mask)].upper() == "PRIMARY" for mask in MASK.findall(clause))
    return HARMLESS.fullmatch(clause) is not None and not is_of_key


def _without_parentheses(text: str) -> str:
    while (shorter := INNERMOST.sub(" ", text)) != text:
        text = shorter
    return text.rstrip("; \n")


def _added(clause: str, names: list[str]) -> str | None:
    """The name of a column that this clause adds, and that is null in old rows."""
    found = None if HARMLESS.fullmatch(clause) else ADDED.fullmatch(clause)
    if found is None or FILLS.search(found[2]):
        return None
    mask = MASK.fullmatch(found[1])
    return names[int(mask[1])] if mask else found[1]
