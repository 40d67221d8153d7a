"""The words in which Kafka's messages are written down: a class per struct, a `field` per field.

Every file in `messages/` is made of these. A class here is only a description and a place for
values; `codec` turns the description into functions, one per message, version and direction, when
they are first needed. Nothing is compiled at import time, for the broker starts in 0.15 s.

Versions are written as Kafka writes them: "0+" (always), "4+" (from 4 on), "2-7", "none".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, dataclass_transform

Buffer: TypeAlias = bytes | bytearray | memoryview
# Record batches, as they lie in a segment: one buffer, or several whose bytes follow one another.
Records: TypeAlias = Buffer | Sequence[Buffer]
Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[Any, list[Buffer], list[Buffer]], None]

ZERO_UUID = bytes(16)
VERSION_MAX = 32767  # an int16 on the wire

_MISSING = object()
_FRESH = object()  # stands in a signature for "call the factory"


class Field:
    """One field: its wire type, in which versions it is there, and its value when it is not."""

    __slots__ = (
        "default",
        "default_factory",
        "is_array",
        "kind",
        "name",
        "nullable",
        "tag",
        "versions",
    )

    name: str
    kind: str | type[Message]
    is_array: bool

    def __init__(
        self,
        kind: Any,
        versions: str,
        nullable: str,
        tag: int | None,
        default: Any,
        default_factory: Callable[[], Any] | None,
    ) -> None:
        self.is_array = type(kind) is list
        self.kind = kind[0] if self.is_array else kind
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.default = default
        self.default_factory = default_factory

    def is_in(self, version: int) -> bool:
        return version in versions_from(self.versions)

    def is_nullable_in(self, version: int) -> bool:
        return version in versions_from(self.nullable)


def field(
    kind: str | type[Message] | list[str] | Sequence[type[Message]],
    versions: str,
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: Any = _MISSING,
    default_factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare a field of a message.

    `kind` is bool, int8, int16, uint16, int32, uint32, int64, float64, string, bytes, records,
    uuid, a message class, or a list of one of these for an array. Every field has a default, for
    there are versions without it. A tagged struct is None when its tag is not sent.
    """
    if default is _MISSING and default_factory is None:
        raise TypeError(f"a field of {kind} without a default")
    return Field(kind, versions, nullable, tag, default, default_factory)


def versions_from(text: str) -> range:
    """`text` in Kafka's notation as a range: "4+", "2-7", "3" or "none"."""
    if text == "none":
        return range(0)
    first, dash, last = text.partition("-")
    if dash:
        return range(int(first), int(last) + 1)
    if text.endswith("+"):
        return range(int(text[:-1]), VERSION_MAX + 1)
    return range(int(text), int(text) + 1)


class Schema:
    """What a message class was declared with, and the functions compiled for it so far."""

    __slots__ = ("api_key", "fields", "flexible", "name", "readers", "versions", "writers")

    def __init__(
        self,
        name: str,
        fields: tuple[Field, ...],
        api_key: int | None,
        versions: range,
        flexible: range,
    ) -> None:
        self.name = name
        self.fields = fields
        self.api_key = api_key
        self.versions = versions
        self.flexible = flexible
        self.readers: dict[int, Reader] = {}
        self.writers: dict[int, Writer] = {}


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class MessageType(type):
    """Makes slots of the fields. The one thing it adds to a class is `__schema__`."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: str = "none",
        flexible: str = "none",
    ) -> MessageType:
        fields = []
        for key, value in list(namespace.items()):
            if type(value) is Field:
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple([one.name for one in fields])
        namespace["__schema__"] = Schema(
            name, tuple(fields), api_key, versions_from(versions), versions_from(flexible)
        )
        return super().__new__(cls, name, bases, namespace)


class Message(metaclass=MessageType):
    """A request, a response or a struct within one: plain, mutable values in slots.

    Keyword arguments only; what is left out has its default. Numbers of the wire are ints (error
    codes too), a uuid is 16 bytes, null is None. Equality is by value.
    """

    if TYPE_CHECKING:
        __schema__: ClassVar[Schema]
    else:

        def __init__(self, **values):
            """Replaced, at the first construction, by a function made for the class."""
            cls = type(self)
            cls.__init__ = _make_init(cls.__schema__)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            mine == theirs
            for (_, mine), (_, theirs) in zip(_items(self), _items(other), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in _items(self))
        return f"{type(self).__name__}({shown})"


def _items(message: Message) -> Iterator[tuple[str, Any]]:
    for one in message.__schema__.fields:
        yield one.name, getattr(message, one.name)


def _shown(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > 16:
        return f"<{len(value)} bytes>"
    return repr(value)


def _make_init(schema: Schema) -> Callable[..., None]:
    scope: dict[str, Any] = {"FRESH": _FRESH}
    parameters, body = [], []
    for index, one in enumerate(schema.fields):
        if one.default_factory is not None:
            scope[f"new_{index}"] = one.default_factory
            parameters.append(f"{one.name}=FRESH")
            body.append(f" self.{one.name} = new_{index}() if {one.name} is FRESH else {one.name}")
        else:
            scope[f"default_{index}"] = one.default
            parameters.append(f"{one.name}=default_{index}")
            body.append(f" self.{one.name} = {one.name}")
    star = "*, " if parameters else ""
    head = f"def __init__(self, {star}{', '.join(parameters)}):"
    exec("\n".join([head, *body, " pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    return init
