"""What the operator of a runner allows a capture to be. Pure.

Anyone who may write the topic `_captures` writes definitions. A runner therefore opens no database,
expands no variable and touches no file because of that topic alone: it compares the definition
with what its own operator approved, in the code of an application, or by `millstream capture add`
and `approve` (`approved_captures.py` keeps it in a file of this machine).
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from millstream.base.errors import Rejected
from millstream.capture.definition import VARIABLE, CaptureDefinition, shown_url


class NotApproved(Rejected):
    """`differing`: in words, without passwords; empty if nothing was ever approved here."""

    def __init__(self, *, capture: str, url: str, differing: tuple[str, ...] = ()) -> None:
        why = (
            f"in the topic _captures differs from what was approved here: {'; '.join(differing)}"
            if differing
            else f"was not approved here; its URL in the topic _captures is {shown(shown_url(url))}"
        )
        super().__init__(
            f"the capture {capture} {why}. Nothing was opened. If that is what you want: "
            f"`millstream capture approve {capture}` (for a capture of an application: restart it)"
        )
        self.capture, self.differing = capture, differing


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What of a definition says where a runner connects, and what it changes there and writes.

    Its tables are not part of it: the rights of the database's user bound those.
    """

    url: str
    mode: str
    outbox: str | None
    topic_prefix: str

    @classmethod
    def of(cls, definition: CaptureDefinition) -> "Approval":
        return cls(
            url=definition.url,
            mode=definition.mode,
            outbox=definition.outbox,
            topic_prefix=definition.topic_prefix,
        )

    @classmethod
    def from_fields(cls, found: Mapping[str, Any]) -> "Approval":
        return cls(**{name: found[name] for name in ("url", "mode", "outbox", "topic_prefix")})

    def to_fields(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def variables(self) -> list[str]:
        """Those of the environment that a runner may look up for it."""
        return VARIABLE.findall(self.url)


def require_approved(definition: CaptureDefinition, approval: Approval | None) -> Approval:
    """The same approval, if it is one of this definition."""
    found = Approval.of(definition)
    if approval is None:
        raise NotApproved(capture=definition.name, url=definition.url)
    if found != approval:
        differing = tuple(_differing(approval.to_fields(), found.to_fields()))
        raise NotApproved(capture=definition.name, url=definition.url, differing=differing)
    return approval


def _differing(approved: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for name in approved:
        before, now = approved[name], found[name]
        if before != now and name == "url":
            yield f"url was {shown(shown_url(before))} and is {shown(shown_url(now))}"
        elif before != now:
            yield f"{name} was {shown(before)} and is {shown(now)}"


def shown(value: str | None) -> str:
    """On one line, with what a terminal would obey escaped."""
    return "none" if not value else ascii(value)
