"""What a capture is told: which database, which tables, where their changes go. Pure.

Kept in the topic `_captures`, so it holds no password: a URL names a variable of the environment
instead, `postgresql://mill:${SHOP_PASSWORD}@db/shop`, which is looked up when it is opened.
Does not know any database: `opening.py` finds the source for a URL.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args
from urllib.parse import quote, urlsplit

from millstream.base.declared import DECIMAL_MODES, TIME_MODES
from millstream.base.errors import Rejected
from millstream.capture.table_names import is_named

Mode = Literal["log", "triggers"]
AtRetainedMax = Literal["warn", "stop", "drop"]
Load = Literal["all", "none"]
Encoding = Literal["json", "avro"]
Format = Literal["millstream", "debezium"]

# A part of topic names: what Kafka allows there, without the dot that separates the parts.
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
NOT_IN_A_TOPIC = re.compile(r"[^A-Za-z0-9._-]")
HOST = re.compile(r"(\[[^]]*\]|[^:[\]]*)(:\d*)?")
# Topics of a capture that are of no table.
TRANSACTIONS, MESSAGES = "transactions", "messages"
TRANSACTION = "transaction"  # as Debezium calls it
SQLITE = "sqlite:///"
PASSWORD_IN_QUERY = re.compile(r"([?&][^=&#]*password[^=&#]*=)([^&#]*)", re.IGNORECASE)
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class BadDefinition(Rejected):
    """A capture that cannot be as it is declared."""


class PasswordInUrl(BadDefinition):
    def __init__(self, *, capture: str) -> None:
        super().__init__(
            f"the URL of the capture {capture} has a password in it, and would be kept with it. "
            "Name a variable of the environment instead: "
            "postgresql://user:${SHOP_PASSWORD}@host/database"
        )
        self.capture = capture


class UnreadableUrl(BadDefinition):
    def __init__(self, *, capture: str, problem: str) -> None:
        super().__init__(
            f"the URL of the capture {capture} cannot be read: {problem}. It is like "
            "postgresql://user:${SHOP_PASSWORD}@host:5432/database (in names, / is %2F and @ is "
            f"%40), {SQLITE}shop.db or {SQLITE}/srv/shop.db"
        )
        self.capture, self.problem = capture, problem


class VariableMissing(BadDefinition):
    def __init__(self, *, capture: str, variable: str) -> None:
        super().__init__(
            f"the URL of the capture {capture} needs the variable {variable}, which is not set in "
            "this environment: set it and start again"
        )
        self.capture, self.variable = capture, variable


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureDefinition:
    """`tables`: as the database names them, with their schema or without it.

    `outbox`: a table of these whose rows become events on topics that they name, and are deleted.
    `at_retained_max`: what to do when the database keeps `retained_bytes_max` of its log for this
    capture: tell it, stop, or drop what makes the database keep it (then all is loaded anew).
    """

    name: str
    url: str
    tables: tuple[str, ...]
    mode: Mode = "log"
    topic_prefix: str = ""  # the capture's name, unless another is given
    partitions: int | None = None  # the broker's default
    load: Load = "all"
    outbox: str | None = None
    has_boundaries: bool = True  # of transactions, on a topic of their own
    encoding: Encoding = "json"
    format: Format = "millstream"
    # Of the format "debezium": its time.precision.mode and decimal.handling.mode, whether records
    # have schemas as its JsonConverter writes them, and whether truncates are written.
    time_mode: str = "adaptive"
    decimal_mode: str = "precise"
    has_schemas: bool = False
    has_truncates: bool = False
    retained_bytes_max: int | None = None
    at_retained_max: AtRetainedMax = "warn"

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadDefinition(
                f"{self.name!r} cannot name a capture: letters, digits, '-' and '_', at most 100"
            )
        if not self.tables:
            raise BadDefinition(f"the capture {self.name} has no tables: name at least one")
        for field, allowed in CHOICES.items():
            if getattr(self, field) not in allowed:
                raise BadDefinition(
                    f"{self.name}: {field}={getattr(self, field)!r}: one of {', '.join(allowed)}"
                )
        if self.format == "debezium" and self.encoding != "json":
            raise BadDefinition(
                f"{self.name}: format='debezium' is written as JSON: leave out encoding="
            )
        if self.outbox is not None and self.outbox not in self.tables:
            raise BadDefinition(f"{self.name}: the outbox {self.outbox} is none of its tables")

    @property
    def prefix(self) -> str:
        return self.topic_prefix or self.name

    @property
    def transactions_topic(self) -> str:
        is_debezium = self.format == "debezium"
        return f"{self.prefix}.{TRANSACTION if is_debezium else TRANSACTIONS}"

    @property
    def messages_topic(self) -> str:
        return f"{self.prefix}.{MESSAGES}"

    def is_outbox(self, table: str) -> bool:
        """By the database's full name of a table, or the last part of it."""
        return self.outbox is not None and is_named(table, self.outbox)

    def has_table(self, table: str) -> bool:
        """By the same rule."""
        return any(is_named(table, given) for given in self.tables)

    def topic_of(self, table: str, *, without: str) -> str:
        """`shop.orders` for "public.orders" without "public", `shop.sales.orders` for others, and
        `shop.public.messages` where the short one is not the table's. Debezium's topics have the
        whole name."""
        short = table if self.format == "debezium" else table.removeprefix(f"{without}.")
        named = table if short in (TRANSACTIONS, MESSAGES) else short
        return f"{self.prefix}.{NOT_IN_A_TOPIC.sub('_', named)}"

    def to_json(self) -> str:
        """Refuses a password: this is kept, and shown. And numbers that nothing can have."""
        require_no_password(self.name, self.url)
        for field in ("partitions", "retained_bytes_max"):
            number = getattr(self, field)
            if number is not None and number < 1:
                raise BadDefinition(f"{self.name}: {field}={number}: at least 1")
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_json(cls, text: str | bytes) -> "CaptureDefinition":
        """Fields that a newer version wrote are left out."""
        found: dict[str, Any] = json.loads(text)
        known = {field.name: found[field.name] for field in fields(cls) if field.name in found}
        return cls(**known | {"tables": tuple(found["tables"])})


CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": get_args(Mode),
    "load": get_args(Load),
    "encoding": get_args(Encoding),
    "format": get_args(Format),
    "time_mode": tuple(TIME_MODES),
    "decimal_mode": DECIMAL_MODES,
    "at_retained_max": get_args(AtRetainedMax),
}


def require_no_password(capture: str, url: str) -> None:
    """A password is a variable, or not there: then the driver's own files and variables count."""
    require_readable(capture, url)
    given = urlsplit(url)
    passwords = [given.password or "", *_passwords_in_query(given.query)]
    if any(VARIABLE.sub("", password) for password in passwords):
        raise PasswordInUrl(capture=capture)


def require_readable(capture: str, url: str) -> None:
    """What only looks like a URL may hide its password from us. Says nothing of what is in it."""
    if url.partition(":")[0].lower() == "sqlite" and not url.startswith(SQLITE):
        raise UnreadableUrl(capture=capture, problem=f"a file of SQLite begins with {SQLITE}")
    try:
        given = urlsplit(VARIABLE.sub("1", url))
    except ValueError:  # half of an IPv6 address
        raise UnreadableUrl(capture=capture, problem="its host is none") from None
    hosts = given.netloc.rpartition("@")[2].split(",")
    behind = f"{given.path}{given.query.partition('=')[0]}{given.fragment}" if given.netloc else ""
    if "@" in behind or not all(map(HOST.fullmatch, hosts)):
        raise UnreadableUrl(capture=capture, problem="its host or port is none")


def _passwords_in_query(query: str) -> list[str]:
    parts = [part.partition("=") for part in query.split("&")]
    return [value for name, _, value in parts if "password" in name.lower()]


def resolve_url(capture: str, url: str, environment: Mapping[str, str]) -> str:
    """The URL with its variables filled in: never kept, never shown. `${SHOP_URL}` is a whole one;
    a variable inside a URL may have any characters."""

    def value_of(found: re.Match[str]) -> str:
        if found[1] not in environment:
            raise VariableMissing(capture=capture, variable=found[1])
        return environment[found[1]]

    if whole := VARIABLE.fullmatch(url):
        return value_of(whole)
    return VARIABLE.sub(lambda found: quote(value_of(found), safe=""), url)


def shown_url(url: str) -> str:
    """For messages: without a password, if somebody wrote one. Anybody may have written it."""
    url = PASSWORD_IN_QUERY.sub(_hidden, url)
    try:
        password = urlsplit(url).password
    except ValueError:  # half of an IPv6 address
        return "what is no URL"
    if not password or VARIABLE.fullmatch(password):
        return url
    return url.replace(f":{password}@", ":***@")


def _hidden(found: re.Match[str]) -> str:
    return found[0] if VARIABLE.fullmatch(found[2]) else f"{found[1]}***"


def absolute_url(url: str, directory: str) -> str:
    """A file of SQLite from the root: a runner may be in another directory than `directory`, where
    it was declared."""
    if not url.startswith(SQLITE) or not (path := url[len(SQLITE) :]) or path[0] in "/$":
        return url
    return f"{SQLITE}{quote(directory)}/{path}"
