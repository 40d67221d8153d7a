"""The kinds of values that settings have: how each is read from text, written for people, and what
is allowed. Which settings there are is in `settings.py`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.base.quantity import (
    INT64_MAX,
    format_duration_ms,
    format_size,
    parse_duration_ms,
    parse_size,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One sort of value: how it is read from text, written for people, and what is allowed."""

    unit: str
    allowed: str
    parse: Callable[[str], Any]
    format: Callable[[Any], str] = str
    is_switch: bool = False


def size(*, at_least: int, at_most: int = INT64_MAX, unlimited: bool = False) -> Kind:
    word = "unlimited" if unlimited else None
    bounds = _bounds(format_size, at_least, at_most, word)
    return Kind(
        unit="bytes",
        allowed=f"a size such as 64MiB{bounds}",
        parse=_bounded(parse_size, at_least, at_most, word),
        format=_with_word(format_size, word),
    )


def duration(*, at_least: int = 0, at_most: int = INT64_MAX, forever: bool = False) -> Kind:
    word = "forever" if forever else None
    bounds = _bounds(format_duration_ms, at_least, at_most, word)
    return Kind(
        unit="ms",
        allowed=f"a duration such as 90s or 7d{bounds}",
        parse=_bounded(parse_duration_ms, at_least, at_most, word),
        format=_with_word(format_duration_ms, word),
    )


def count(*, at_least: int, at_most: int) -> Kind:
    return Kind(
        unit="count",
        allowed=f"a whole number{_bounds(str, at_least, at_most, None)}",
        parse=_bounded(int, at_least, at_most, None),
    )


def choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return Kind(unit="word", allowed=" or ".join([", ".join(words[:-1]), words[-1]]), parse=parse)


def switch() -> Kind:
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}

    def parse(text: str) -> bool:
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]

    return Kind(
        unit="true/false",
        allowed="true or false",
        parse=parse,
        format=lambda value: str(value).lower(),
        is_switch=True,
    )


def directory() -> Kind:
    def parse(text: str) -> Path:
        if not text.strip():
            raise ValueError("empty path")
        return Path(text).expanduser()

    return Kind(unit="path", allowed="a directory; it is made if missing", parse=parse)


def file(allowed: str = "a file, or none") -> Kind:
    def parse(text: str) -> Path:
        if not text.strip():
            raise ValueError("empty path")
        return Path(text).expanduser()

    return Kind(unit="path", allowed=allowed, parse=_none_or(parse), format=_or_none)


def words(*known: str) -> Kind:
    def parse(text: str) -> tuple[str, ...]:
        given = tuple(word.strip() for word in text.split(","))
        if given == ("none",):
            return ()
        if not set(given) <= set(known):
            raise ValueError(text)
        return given

    return Kind(
        unit="words",
        allowed=f"one or several of {', '.join(known)}, separated by commas, or none",
        parse=parse,
        format=lambda value: _or_none(",".join(value)),
    )


def principals() -> Kind:
    def parse(text: str) -> tuple[str, ...]:
        given = tuple(word.strip() for word in text.split(";"))
        if given == ("none",):
            return ()
        if not all(kind and name for kind, _, name in (word.partition(":") for word in given)):
            raise ValueError(text)
        return given

    return Kind(
        unit="principals",
        allowed="User:admin, or several separated by semicolons, or none",
        parse=parse,
        format=lambda value: _or_none(";".join(value)),
    )


def host_names() -> Kind:
    def parse(text: str) -> tuple[str, ...]:
        given = tuple(word.strip() for word in text.split(","))
        if given == ("none",):
            return ()
        if not all(re.fullmatch(r"[^\s:,/\[\]]+|\[[0-9a-fA-F:.]+\]", word) for word in given):
            raise ValueError(text)
        return given

    return Kind(
        unit="hosts",
        allowed="shop.example.org, or several separated by commas, or none",
        parse=parse,
        format=lambda value: _or_none(",".join(value)),
    )


def pairs() -> Kind:
    def parse(text: str) -> tuple[tuple[str, str], ...]:
        if text == "none":
            return ()
        cut = [pair.partition("=") for pair in text.split(";") if pair.strip()]
        if not all(name.strip() and separator for name, separator, _ in cut):
            raise ValueError(text)
        return tuple((name.strip(), value.strip()) for name, _, value in cut)

    return Kind(
        unit="name=value",
        allowed="NAME=VALUE, or several separated by semicolons, or none",
        parse=parse,
        format=lambda value: _or_none(";".join("=".join(pair) for pair in value)),
    )


def sentence(allowed: str) -> Kind:
    def parse(text: str) -> str:
        return "" if text == "none" else text.strip()

    return Kind(unit="text", allowed=allowed, parse=parse, format=_or_none)


def _or_none(value: object) -> str:
    return str(value or "none")


def _none_or(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text == "none" else parse(text)


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens. Port 0 asks the system for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, *, port_at_least: int = 0) -> Address:
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:,/\[\]]+)):(\d{1,5})", text.strip())
    if match is None or not port_at_least <= int(match[3]) <= 65535:
        raise ValueError(f"{text!r} is not host:port")
    return Address(match[1] or match[2], int(match[3]))


def parse_addresses(text: str) -> tuple[Address, ...]:
    return tuple(parse_address(part, port_at_least=1) for part in text.split(","))


def address() -> Kind:
    return Kind(unit="host:port", allowed="host:port, port 0 for any free one", parse=parse_address)


def told_address() -> Kind:
    return Kind(
        unit="host:port",
        allowed="host:port, port 0 for the one that it listens on, or none",
        parse=_none_or(parse_address),
        format=_or_none,
    )


def address_or_none() -> Kind:
    return Kind(
        unit="host:port",
        allowed="host:port, port 0 for any free one, or none",
        parse=_none_or(parse_address),
        format=_or_none,
    )


def addresses() -> Kind:
    return Kind(
        unit="host:port",
        allowed="host:port, or several separated by commas",
        parse=parse_addresses,
        format=lambda value: ",".join(map(str, value)),
    )


def _bounds(form: Callable[[int], str], at_least: int, at_most: int, word: str | None) -> str:
    low = f", at least {form(at_least)}" if at_least else ""
    high = f", at most {form(at_most)}" if at_most < INT64_MAX else ""
    return f"{low}{high}{f', or {word}' if word else ''}"


def _bounded(
    parse: Callable[[str], int], at_least: int, at_most: int, word: str | None
) -> Callable[[str], int]:
    """Kafka's -1, "no limit", has a word here; the number is understood too."""

    def parse_bounded(text: str) -> int:
        if word and text.strip() in (word, "-1"):
            return -1
        value = parse(text)
        if not at_least <= value <= at_most:
            raise ValueError(f"{value} is out of range")
        return value

    return parse_bounded


def _with_word(form: Callable[[int], str], word: str | None) -> Callable[[int], str]:
    return lambda value: word if word and value == -1 else form(value)
