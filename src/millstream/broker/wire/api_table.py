"""From an API's key to its message classes, imported when they are first asked for.

All modules together take a few ten milliseconds to import, a start of the broker needs a handful.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import NamedTuple

from millstream.broker.wire.message import Message


class Api(NamedTuple):
    """Where an API is described, and the versions that the description covers."""

    module: str
    name: str
    version_first: int
    version_last: int
    flexible_from: int | None

    def has_version(self, version: int) -> bool:
        return self.version_first <= version <= self.version_last

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


class MessagesByKey(Mapping[int, type[Message]]):
    """API key -> message class of one direction."""

    def __init__(self, package: str, apis: Mapping[int, Api], direction: str) -> None:
        self._package = package
        self._apis = apis
        self._direction = direction
        self._loaded: dict[int, type[Message]] = {}

    def __getitem__(self, api_key: int) -> type[Message]:
        return self._loaded.get(api_key) or self._load(api_key)

    def __iter__(self) -> Iterator[int]:
        return iter(self._apis)

    def __len__(self) -> int:
        return len(self._apis)

    def _load(self, api_key: int) -> type[Message]:
        api = self._apis[api_key]
        module = import_module(f"{self._package}.{api.module}")
        message_class: type[Message] = getattr(module, api.name + self._direction)
        self._loaded[api_key] = message_class
        return message_class
