"""What went wrong, as application/problem+json (RFC 9457), and the one table of errors to statuses.

    {"type": "urn:millstream:problem:unknown-view", "title": "There is no such view", "status": 404,
     "detail": "no view 'click' (there are: clicks)", "what_to_do": "GET /v1/views lists them."}

400 is for what the OpenAPI document does not allow, 422 for what it allows and the view or topic
does not. What we did not raise on purpose says nothing of its inside: that is for the server's
stderr. Pure.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.base.errors import Corrupt, MillstreamError, Rejected, Retryable
from millstream.capture import recorded_change
from millstream.values.row_records import BadRow
from millstream.values.unfit import Unfit
from millstream.views.feed_tokens import BadToken
from millstream.views.store import BadQuestion, NotInThisStore, ViewNotFound
from millstream.views.waiting import NotFreshYet

PROBLEM_JSON: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:millstream:problem:"
RETRY_SECONDS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One sort of problem; `word` is the end of its type."""

    word: str
    status: int
    title: str
    what_to_do: str
    is_retryable: bool = False


def _kinds(*kinds: Kind) -> Mapping[str, Kind]:
    return {kind.word: kind for kind in kinds}


KINDS: Final = _kinds(
    Kind(
        word="bad-request",
        status=400,
        title="The request cannot be understood",
        what_to_do="Correct it: GET /openapi.json says what can be asked.",
    ),
    Kind(
        word="no-token",
        status=401,
        title="A token is missing, or is not the right one",
        what_to_do="Send `Authorization: Bearer TOKEN`, with the token of the server's token file.",
    ),
    Kind(
        word="foreign-page",
        status=403,
        title="The request comes from a page of another site, or by a foreign name",
        what_to_do="Ask by the server's own address, or name the host in the setting `hosts`.",
    ),
    Kind(
        word="read-only",
        status=403,
        title="Nothing can be changed here",
        what_to_do="Start the server with --token-file, and sign in to the console.",
    ),
    Kind(
        word="not-found",
        status=404,
        title="There is nothing at this path",
        what_to_do="GET / lists what there is.",
    ),
    Kind(
        word="unknown-topic",
        status=404,
        title="There is no such topic",
        what_to_do="GET /v1/topics lists them.",
    ),
    Kind(
        word="unknown-view",
        status=404,
        title="There is no such view",
        what_to_do="GET /v1/views lists them.",
    ),
    Kind(
        word="unknown-table",
        status=404,
        title="There is no such captured table",
        what_to_do="GET /v1/tables lists them.",
    ),
    Kind(
        word="view-not-there-yet",
        status=404,
        title="The view's job has not run yet",
        what_to_do="Run it once: `millstream run`.",
    ),
    Kind(
        word="no-row",
        status=404,
        title="The view has no row of this key",
        what_to_do="It may come later: `after=` waits for a write of yours.",
    ),
    Kind(
        word="method-not-allowed",
        status=405,
        title="This path does not have this method",
        what_to_do="Use one that the header Allow names.",
    ),
    Kind(
        word="not-acceptable",
        status=406,
        title="There is no answer of this media type",
        what_to_do="Accept application/json or text/event-stream.",
    ),
    Kind(
        word="too-slow",
        status=408,
        title="The body did not arrive in time",
        what_to_do="Send it faster, or in smaller parts.",
    ),
    Kind(
        word="key-used-otherwise",
        status=409,
        title="The idempotency key was used for other rows",
        what_to_do="Use a new key for new rows. Nothing was written.",
    ),
    Kind(
        word="not-reached",
        status=412,
        title="The view has not passed the position that `after` names",
        what_to_do="Ask again, or give a longer timeout; see that the view's job runs.",
        is_retryable=True,
    ),
    Kind(
        word="too-large",
        status=413,
        title="The request is too large",
        what_to_do="Send less at once.",
    ),
    Kind(
        word="url-too-long",
        status=414,
        title="The URL is too long",
        what_to_do="Ask for fewer keys, or with fewer conditions.",
    ),
    Kind(
        word="not-json",
        status=415,
        title="The body is not declared as JSON",
        what_to_do="Send it with `Content-Type: application/json`.",
    ),
    Kind(
        word="does-not-fit",
        status=422,
        title="A value does not fit",
        what_to_do="Correct the value: the detail names it. Nothing was written.",
    ),
    Kind(
        word="not-in-this-store",
        status=422,
        title="The view's store has no answer to this",
        what_to_do="Ask what the detail names instead.",
    ),
    Kind(
        word="bad-token",
        status=422,
        title="The token is none of this feed",
        what_to_do="Give one as it came, with the same `where`; or none, to start anew.",
    ),
    Kind(
        word="refused",
        status=422,
        title="Refused",
        what_to_do="The detail says why.",
    ),
    Kind(
        word="too-many",
        status=429,
        title="Too many at one time",
        what_to_do="Ask again later.",
        is_retryable=True,
    ),
    Kind(
        word="fault",
        status=500,
        title="The server failed",
        what_to_do="Look for the id in the server's log: the line has the error in full.",
    ),
    Kind(
        word="try-again",
        status=503,
        title="It cannot be done now",
        what_to_do="Ask again later, with the same Idempotency-Key if rows were sent.",
        is_retryable=True,
    ),
)

# The nearest type wins: an error's own, then its family's.
WORDS: Final[Mapping[type[MillstreamError], str]] = {
    ViewNotFound: "view-not-there-yet",
    BadQuestion: "does-not-fit",
    NotInThisStore: "not-in-this-store",
    NotFreshYet: "not-reached",
    BadToken: "bad-token",
    recorded_change.BadToken: "bad-token",
    BadRow: "does-not-fit",
    Unfit: "does-not-fit",
    Rejected: "refused",
    Retryable: "try-again",
    Corrupt: "fault",
}


@dataclass(eq=False)
class Problem(MillstreamError):
    """Raised where a request is refused; `word` names its kind. `id`: of the line of the log that
    says more."""

    word: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str = ""

    def __str__(self) -> str:
        return self.detail

    @property
    def kind(self) -> Kind:
        return KINDS[self.word]

    @property
    def all_headers(self) -> dict[str, str]:
        retry = {"Retry-After": f"{RETRY_SECONDS}"} if self.kind.is_retryable else {}
        return retry | dict(self.headers)

    def to_json(self) -> bytes:
        found: dict[str, Any] = {
            "type": TYPE_PREFIX + self.word,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "what_to_do": self.kind.what_to_do,
        } | ({"id": self.id} if self.id else {})
        return json.dumps(found).encode()


def problem_of(error: BaseException) -> Problem:
    if isinstance(error, Problem):
        return error
    kinds = (WORDS[one] for one in type(error).__mro__ if one in WORDS)
    word = next(kinds, "fault")
    if word == "fault":
        return Problem("fault", "an error that nobody foresaw; nothing is known of its effect")
    return Problem(word, str(error))


def unknown(what: str, name: str, known: Iterable[str]) -> Problem:
    there = ", ".join(sorted(known)) or "none"
    return Problem(f"unknown-{what}", f"no {what} {name!r} (there are: {there})")
