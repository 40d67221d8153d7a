"""Writes the Python source of a reader: bytes of one message in one version -> the message.

Structs within structs become nested loops of one function; neighbouring fields of a fixed size
become one `struct` call, together with the size byte of what follows them. Every size and count is
checked against the bytes left before anything is made of it. For `ReplicaState` of a Fetch request:

    m1 = new(ReplicaState)
    m1.replica_id, m1.replica_epoch, t = unpack_iqB(b, p)
    p += 13
    if t:
        p = skip_tags(b, p, t)
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any

from millstream.broker.wire.message import Field, Message
from millstream.broker.wire.primitives import (
    Invalid,
    read_long_string_size,
    read_long_uvarint,
    read_tag,
    skip_tags,
    wrong_count,
    wrong_size,
)
from millstream.broker.wire.source import (
    ARRAY_COUNT,
    FIXED,
    SIZED,
    Source,
    element_bytes_min,
    layout,
    layout_name,
)

_SHARED_NAMES: dict[str, Any] = {
    "Invalid": Invalid,
    "new": object.__new__,
    "read_long_string_size": read_long_string_size,
    "read_long_uvarint": read_long_uvarint,
    "read_tag": read_tag,
    "skip_tags": skip_tags,
    "unpack_from": unpack_from,
    "wrong_count": wrong_count,
    "wrong_size": wrong_size,
}


def reader_source(message_class: type[Message], version: int) -> Source:
    """`read(b, p) -> (message, p)`. It needs `FAILURES` and `malformed` in its scope."""
    return _ReaderSource(message_class, version).source


class _ReaderSource:
    # Names in the source: b the buffer, p the position, end where the buffer ends, n a size or
    # count, e where a value ends, t a number of tags; m1, m2 ... the structs.

    def __init__(self, message_class: type[Message], version: int) -> None:
        schema = message_class.__schema__
        self.version = version
        self.is_flexible = version in schema.flexible
        self.source = Source()
        self.source.scope.update(_SHARED_NAMES)
        self.run: list[tuple[str, str, str]] = []  # format, target and field, not yet written
        self.names_used = 0
        add = self.source.add
        with self.source.block("def read(b, p):"):
            with self.source.block("try:"):
                add("end = len(b)")
                if _has_records(message_class):
                    add("view = memoryview(b)")
                message = self._new_struct(message_class, "")
                self._struct(message_class, message, "")
                self._flush()
                add(f"return {message}, p")
            with self.source.block("except FAILURES as error:"):
                add("raise malformed(error, p) from None")

    def _struct(self, message_class: type[Message], name: str, path: str) -> None:
        absent: list[Field] = []
        tagged: list[Field] = []
        for one in message_class.__schema__.fields:
            if not one.is_in(self.version):
                absent.append(one)
            elif one.tag is not None:
                tagged.append(one)
            else:
                self._value(one, f"{name}.{one.name}", path + one.name)
        self._defaults(absent + tagged, name)
        if self.is_flexible:
            self._tags(tagged, name, path)

    def _defaults(self, fields: list[Field], name: str) -> None:
        by_default: dict[str, list[str]] = {}
        for one in fields:
            target = f"{name}.{one.name}"
            if one.default_factory is None:
                by_default.setdefault(repr(one.default), []).append(target)
            elif one.default_factory is list:
                self.source.add(f"{target} = []")
            else:
                assert isinstance(one.kind, type)
                self.source.add(f"{target} = {self.source.name(one.kind)}()")
        for default, targets in by_default.items():
            self.source.add(f"{' = '.join(targets)} = {default}")

    def _value(self, field: Field, target: str, path: str) -> None:
        is_nullable = field.is_nullable_in(self.version)
        if field.is_array:
            self._array(field.kind, is_nullable, target, path + "[]")
        else:
            self._single(field.kind, is_nullable, target, path)

    def _single(self, kind: str | type[Message], is_nullable: bool, target: str, path: str) -> None:
        if not isinstance(kind, str):
            self._nested(kind, is_nullable, target, path)
        elif kind in FIXED:
            self.run.append((FIXED[kind], target, path))
        else:
            self._sized(kind, is_nullable, target, path)

    def _nested(self, kind: type[Message], is_nullable: bool, target: str, path: str) -> None:
        if not is_nullable:
            name = self._new_struct(kind, path)
            self.source.add(f"{target} = {name}")
            self._struct(kind, name, path + ".")
            return
        self.run.append(("b", "n", path))  # KIP-893: -1 is null, 1 is a struct
        self._flush()
        with self.source.block("if n < 0:", path):
            self.source.add(f"{target} = None")
        with self.source.block("else:"):
            name = self._new_struct(kind, path)
            self.source.add(f"{target} = {name}")
            self._struct(kind, name, path + ".")
            self._flush()

    def _sized(self, kind: str, is_nullable: bool, target: str, path: str) -> None:
        self._prefix(SIZED[kind], path, "string_size" if kind == "string" else "uvarint")
        if not is_nullable:
            self._sized_body(kind, target, path)
            return
        with self.source.block("if n == 0:" if self.is_flexible else "if n == -1:", path):
            self.source.add(f"{target} = None")
        with self.source.block("else:"):
            self._sized_body(kind, target, path)

    def _sized_body(self, kind: str, target: str, path: str) -> None:
        size = "n - 1" if self.is_flexible else "n"
        value = {
            "string": 'str(b[p:e], "utf-8")',
            "bytes": "bytes(b[p:e])",
            "records": "view[p:e]",
        }[kind]
        self.source.add(f"e = p + {size}", path)
        with self.source.block("if e > end or e < p:", path):
            self.source.add(f"raise wrong_size({size}, end - p)", path)
        self.source.add(f"{target} = {value}", path)
        self.source.add("p = e", path)

    def _array(self, kind: str | type[Message], is_nullable: bool, target: str, path: str) -> None:
        self._prefix(ARRAY_COUNT, path, "uvarint")
        if not is_nullable:
            self._array_body(kind, target, path)
            return
        with self.source.block("if n == 0:" if self.is_flexible else "if n == -1:", path):
            self.source.add(f"{target} = None")
        with self.source.block("else:"):
            self._array_body(kind, target, path)

    def _array_body(self, kind: str | type[Message], target: str, path: str) -> None:
        add = self.source.add
        if self.is_flexible:
            add("n -= 1", path)
        size = element_bytes_min(kind, self.version, is_flexible=self.is_flexible)
        # An element of no bytes counts as one, or a count alone could fill the memory.
        with self.source.block(f"if n < 0 or n * {max(1, size)} > end - p:", path):
            add("raise wrong_count(n, end - p)", path)
        if isinstance(kind, str) and kind in FIXED and kind != "uuid":
            add(f'{target} = list(unpack_from(f">{{n}}{FIXED[kind]}", b, p)) if n else []', path)
            add(f"p += {size} * n")
            return
        array = self._fresh_name("a")
        add(f"{array} = {target} = []")
        with self.source.block("for _ in range(n):", path):
            if isinstance(kind, str):
                element = "v"
                self._single(kind, False, element, path)
            else:
                element = self._new_struct(kind, path)
                self._struct(kind, element, path + ".")
            self._flush()
            add(f"{array}.append({element})")

    def _tags(self, tagged: list[Field], name: str, path: str) -> None:
        where = path + "tags"
        self.run.append(("B", "t", where))
        self._flush()
        with self.source.block("if t:", where):
            if tagged:
                self._known_tags(tagged, name, path, where)
            else:
                self.source.add("p = skip_tags(b, p, t)", where)

    def _known_tags(self, tagged: list[Field], name: str, path: str, where: str) -> None:
        add, block = self.source.add, self.source.block
        tag, stop = self._fresh_name("tag"), self._fresh_name("stop")
        with block("if t > 127:", where):
            add("t, p = read_long_uvarint(b, p, t)", where)
        add(f"{tag} = -1", where)
        with block("for _ in range(t):", where):
            add(f"{tag}, n, p = read_tag(b, p, {tag})", where)
            add(f"{stop} = p + n", where)
            for index, one in enumerate(tagged):
                with block(f"{'elif' if index else 'if'} {tag} == {one.tag}:", where):
                    self._value(one, f"{name}.{one.name}", path + one.name)
                    self._flush()
            with block("else:"):
                add(f"p = {stop}")
            with block(f"if p != {stop}:", where):
                add('raise Invalid("a tagged value differs from its size")', where)

    def _prefix(self, older_form: str, path: str, long_form: str) -> None:
        """Read a size or count into n, fused with the fields before it."""
        self.run.append(("B" if self.is_flexible else older_form, "n", path))
        self._flush()
        if self.is_flexible:
            with self.source.block("if n > 127:", path):
                self.source.add(f"n, p = read_long_{long_form}(b, p, n)", path)

    def _flush(self) -> None:
        if not self.run:
            return
        formats = tuple([one[0] for one in self.run])
        targets = ", ".join([one[1] for one in self.run])
        first, last = self.run[0][2], self.run[-1][2]
        where = first if first == last else f"{first} .. {last}"
        self.run.clear()
        if formats == ("B",):
            self.source.add(f"{targets} = b[p]", where)
        else:
            function = f"unpack_{layout_name(formats)}"
            self.source.scope[function] = layout(formats).unpack_from
            comma = "," if len(formats) == 1 else ""
            self.source.add(f"{targets}{comma} = {function}(b, p)", where)
        self.source.add(f"p += {layout(formats).size}", where)

    def _new_struct(self, kind: type[Message], path: str) -> str:
        name = self._fresh_name("m")
        self.source.add(f"{name} = new({self.source.name(kind)})", path)
        return name

    def _fresh_name(self, stem: str) -> str:
        self.names_used += 1
        return f"{stem}{self.names_used}"


def _has_records(message_class: type[Message]) -> bool:
    return any(
        one.kind == "records" or (isinstance(one.kind, type) and _has_records(one.kind))
        for one in message_class.__schema__.fields
    )
