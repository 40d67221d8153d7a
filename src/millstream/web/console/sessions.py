"""Who looks at the console, and whether they may change something. Pure.

A browser cannot send the server's token with every page, so it is given once, for a cookie:

    millstream_console=<expires, ms since 1970>.<HMAC-SHA256 of that, by the token, in hex>

The cookie is good for the console alone, and goes when the token is changed. It is HttpOnly and
SameSite=Strict. What changes something asks besides for a word that only our own pages have
(another HMAC, of the cookie), and that the browser says that it comes from one of them.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final

from millstream.base.quantity import HOUR_MS
from millstream.web.problems import Problem

COOKIE: Final = "millstream_console"
COOKIE_PATH: Final = "/console"
SESSION_MS: Final = 12 * HOUR_MS
FORM_WORD: Final = "form_word"
SAME_ORIGIN: Final = "same-origin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """`why_not`: says why nothing can be changed, empty if it can. `form_word` is for forms."""

    why_not: str = ""
    form_word: str = ""
    is_signed_in: bool = False

    @property
    def may_write(self) -> bool:
        return not self.why_not


READ_ONLY: Final = (
    "This console is read-only: the server was started without a token. "
    "Start it with --token-file to produce records, put dead letters back and restart jobs."
)
BEARER_ONLY: Final = "Sign in to change something: a token in a header is for the HTTP API."


def session_for(token: str, *, now_ms: int) -> str:
    expires = f"{now_ms + SESSION_MS}"
    return f"{expires}.{_mac(token, 'session', expires)}"


def is_session(cookie: str, token: str, *, now_ms: int) -> bool:
    expires, _, mac = cookie.partition(".")
    is_ours = hmac.compare_digest(mac.encode(), _mac(token, "session", expires).encode())
    return is_ours and expires.isdecimal() and now_ms < int(expires)


def form_word_of(cookie: str, token: str) -> str:
    return _mac(token, "form", cookie)


def session_in(headers: Mapping[str, str]) -> str:
    """The cookie that came, if any; nothing of what cannot be read."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def visitor_of(headers: Mapping[str, str], token: str | None, *, now_ms: int) -> Visitor:
    """Of a request that the guard has let in."""
    if token is None:
        return Visitor(why_not=READ_ONLY)
    cookie = session_in(headers)
    if not is_session(cookie, token, now_ms=now_ms):
        return Visitor(why_not=BEARER_ONLY)
    return Visitor(form_word=form_word_of(cookie, token), is_signed_in=True)


def require_writer(visitor: Visitor, headers: Mapping[str, str], form: Mapping[str, str]) -> None:
    """Before anything is changed."""
    if not visitor.may_write:
        raise Problem("read-only", visitor.why_not)
    require_own_page(headers)
    if not hmac.compare_digest(form.get(FORM_WORD, "").encode(), visitor.form_word.encode()):
        raise Problem("foreign-page", "the form is none of this session: load its page again")


def require_own_page(headers: Mapping[str, str]) -> None:
    """Browsers say where a form comes from. The guard has compared Origin with Host."""
    if "origin" not in headers and headers.get("sec-fetch-site") != SAME_ORIGIN:
        raise Problem("foreign-page", "the form does not say that it comes from this console")


def _mac(token: str, use: str, text: str) -> str:
    return hmac.new(token.encode(), f"{use}:{text}".encode(), hashlib.sha256).hexdigest()
