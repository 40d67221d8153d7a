"""What every encoder does: a row in, bytes out; or an error that names the field."""

from typing import Any, Protocol


class Encoder(Protocol):
    """Takes a mapping, a dataclass or a pydantic model; raises `Unfit` if it is another shape."""

    def encode(self, row: Any) -> bytes: ...
