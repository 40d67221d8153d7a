"""What is told of an error where events are personal: what kind it is and where, not its words.

Errors get into diagnostics, which no erasure reaches; and a KeyError says the key that was not
there. What a program raises of its own is its own affair; what of it goes over a topic is decided
in `command_topic.py`. Pure.
"""

import re
import traceback
from pathlib import Path
from typing import Final

# What msgspec says of types alone. Other messages of it have values in them.
_OF_TYPES: Final = re.compile(
    r"(Expected `[\w |.-]+`, got `[\w.]+`|Object missing required field `\w+`"
    r"|Encoding objects of type [\w.]+ is unsupported)( - at `[$\w.\[\]]*`)?"
)
_WHY: Final = "what it says is not told, as there are personal events"


def reason_of(error: BaseException, *, is_personal: bool) -> str:
    """Of a value that does not fit its type."""
    text = str(error)
    if not is_personal or _OF_TYPES.fullmatch(text):
        return text
    return f"{type(error).__name__} ({_WHY})"


def cause_of(error: BaseException, *, is_personal: bool) -> str:
    """Of a function of the application that failed."""
    kind = type(error).__name__
    if not is_personal:
        return f"{kind}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{kind}{place} ({_WHY})"


def cause_to_chain(error: Exception, *, is_personal: bool) -> Exception | None:
    """What to raise from: a traceback would print its words."""
    return None if is_personal else error
