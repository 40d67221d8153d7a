"""Approves a capture as the topic has it, as an operator does who has looked."""

from collections.abc import Mapping
from typing import Any

from millstream.capture.approval import Approval
from millstream.capture.control import CaptureControl


def approved(client: Mapping[str, Any], name: str) -> Approval | None:
    found = CaptureControl(client).captures().get(name)
    if found is None or found.definition is None:
        return None
    return Approval.of(found.definition)
