"""The arguments of commands that wait in a topic, sealed where events are personal. Pure.

Whose data they have is not known before the command has run: so they are sealed with the wrapping
key itself, and the next erasure, whoever is forgotten, closes all that still wait. In the record
of the command they are one argument, `$sealed`: no parameter is called so.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.event_types import EventTypes
from millstream.eventsourcing.sealing import SealBroken

SEALED: Final = "$sealed"

Arguments = Mapping[str, msgspec.Raw]


class SealedBeforeErasure(Rejected):
    def __init__(self, *, stream: str, command: str) -> None:
        super().__init__(
            f"{command} of {stream} waited while somebody was forgotten, and its arguments cannot "
            "be opened any more: send it again"
        )
        self.stream, self.command = stream, command


class BadSealedArguments(Rejected):
    """Whoever can write to the topic can send it: refused as any bad argument."""

    def __init__(self, *, stream: str, command: str, reason: str) -> None:
        super().__init__(f"{command} of {stream} has sealed arguments that are none: {reason}")
        self.stream, self.command, self.reason = stream, command, reason


def seal_arguments(
    arguments: Arguments, types: EventTypes, *, stream: str, command: str
) -> Arguments:
    if types.sealing is None or not types.has_personal:
        return arguments
    encoded = msgspec.json.encode(arguments)
    sealed = types.sealing.seal_command(encoded, place=_place(stream, command))
    return {SEALED: msgspec.Raw(msgspec.json.encode(sealed))}


def open_arguments(
    arguments: Arguments, types: EventTypes, *, stream: str, command: str
) -> Arguments:
    """Raises SealedBeforeErasure. What was not sealed is as it came."""
    sealed = arguments.get(SEALED)
    if sealed is None or types.sealing is None:
        return arguments
    try:
        text = msgspec.json.decode(sealed, type=str)
        opened = types.sealing.open_command(text, place=_place(stream, command))
    except (msgspec.MsgspecError, RecursionError, SealBroken) as error:
        raise BadSealedArguments(stream=stream, command=command, reason=str(error)) from None
    if opened is None:
        raise SealedBeforeErasure(stream=stream, command=command)
    return msgspec.json.decode(opened, type=dict[str, msgspec.Raw])


def _place(stream: str, command: str) -> str:
    return f"{stream} {command}"
