"""What a check has found: a verdict, the facts in a sentence, and how to mend it. Pure."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`mend` is empty where there is nothing to mend."""

    check: str
    verdict: Verdict
    told: str
    mend: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
