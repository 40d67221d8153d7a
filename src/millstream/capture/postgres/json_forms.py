"""The text of a value, as PostgreSQL writes it, to its JSON form. Pure.

The forms are those of docs/formats/capture_values.md. Sessions are set so that a text does not
depend on where it was asked for (`SESSION_OPTIONS`).
"""

import re
from base64 import b64encode
from binascii import unhexlify
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Final

Form = Callable[[bytes], bytes]

# What the text of a value depends on, for all connections alike.
SESSION_OPTIONS: Final = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "search_path": "pg_catalog",
    "row_security": "off",  # an error, rather than rows that are left out
}

must_escape = re.compile(rb'["\\\x00-\x1f]').search
_ELEMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^,"{}\\]+)', re.DOTALL)
_BACKSLASHED = re.compile(rb"\\(.)", re.DOTALL)
_NINE: Final = ord("9")


def escaped(text: bytes) -> bytes:
    return encode_basestring(text.decode()).encode()


def of_text(text: bytes) -> bytes:
    return escaped(text) if must_escape(text) else b'"' + text + b'"'


def of_number(text: bytes) -> bytes:
    return text


def of_plain(text: bytes) -> bytes:
    """A text that has nothing to escape: a date, a number with every digit."""
    return b'"' + text + b'"'


def of_boolean(text: bytes) -> bytes:
    return b"true" if text == b"t" else b"false"


def of_float(text: bytes) -> bytes:
    """A number, or one of "NaN", "Infinity", "-Infinity"."""
    return text if text[-1] <= _NINE else b'"' + text + b'"'


def of_timestamp(text: bytes) -> bytes:
    """2026-01-01 12:00:00 to 2026-01-01T12:00:00."""
    return b'"' + text.replace(b" ", b"T", 1) + b'"' if b":" in text else b'"' + text + b'"'


def of_timestamptz(text: bytes) -> bytes:
    """2026-01-01 12:00:00+00 to 2026-01-01T12:00:00Z. The session's zone is UTC."""
    return of_timestamp(text.replace(b"+00", b"Z", 1))


def of_bytea(text: bytes) -> bytes:
    return b'"' + b64encode(unhexlify(text[2:])) + b'"'


def array_form(of_element: Form) -> Form:
    """An array of one dimension that begins with 1 to a JSON array; another one stays text."""

    def of_array(text: bytes) -> bytes:
        if text[:1] != b"{" or text[1:2] == b"{":
            return of_text(text)
        if b'"' not in text:
            words = text[1:-1].split(b",") if len(text) > 2 else []
            return b"[" + b",".join([_bare(word, of_element) for word in words]) + b"]"
        parts = [_element(found, of_element) for found in _ELEMENT.finditer(text[1:-1])]
        return b"[" + b",".join(parts) + b"]"

    return of_array


def _element(found: re.Match[bytes], of_element: Form) -> bytes:
    quoted, bare = found.groups()
    if quoted is None:
        return _bare(bare, of_element)
    return of_element(_BACKSLASHED.sub(rb"\1", quoted))


def _bare(word: bytes, of_element: Form) -> bytes:
    return b"null" if word == b"NULL" else of_element(word)
