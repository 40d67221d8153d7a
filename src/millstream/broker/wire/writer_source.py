"""Writes the Python source of a writer: a message in one version -> its bytes, in parts.

The parts of a message are many and small, so they are gathered in `parts` and joined once. Record
batches are large and must not be copied: before each one, the parts so far are joined into a chunk,
and the batch itself becomes the next chunk. For an entry of `node_endpoints` in a Produce response:

    parts += (
        pack_i(m2.node_id),
        STRING_SIZE[len(s := m2.host.encode()) + 1],
        s,
        pack_i(m2.port),
        b"\\0" if (s := m2.rack) is None else STRING_SIZE[len(s := s.encode()) + 1] + s,
        b"\\0",
    )
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Any, NoReturn

from millstream.broker.wire.message import Field, Message
from millstream.broker.wire.primitives import STRING_SIZE, UVARINT, Invalid
from millstream.broker.wire.source import ARRAY_COUNT, FIXED, SIZED, Source, layout, layout_name

UUID_BYTES = 16


def _reject_uuid(value: bytes) -> NoReturn:
    raise Invalid(f"a uuid has {UUID_BYTES} bytes, not {len(value)}")


_SHARED_NAMES: dict[str, Any] = {
    "SEVERAL": frozenset([list, tuple]),
    "STRING_SIZE": STRING_SIZE,
    "UVARINT": UVARINT,
    "join": b"".join,
    "pack": pack,
    "pack_h": Struct(">h").pack,
    "pack_i": Struct(">i").pack,
    "reject_uuid": _reject_uuid,
}
_NULL = {"B": r'b"\0"', "b": r'b"\xff"', "h": r'b"\xff\xff"', "i": r'b"\xff\xff\xff\xff"'}


def writer_source(message_class: type[Message], version: int) -> Source:
    """`write(message, parts, chunks)`. It needs `FAILURES` and `unencodable` in its scope."""
    return _WriterSource(message_class, version).source


class _WriterSource:
    # Names in the source: s an encoded string or bytes, r records, n a size; v1, v2 ... arrays;
    # m, m1, m2 ... the structs.

    def __init__(self, message_class: type[Message], version: int) -> None:
        self.version = version
        self.is_flexible = version in message_class.__schema__.flexible
        self.source = Source()
        self.source.scope.update(_SHARED_NAMES)
        self.run: list[tuple[str, str, str]] = []  # format, value and field, not yet written
        self.items: list[tuple[str, str]] = []  # expressions and fields, not yet written
        self.parts = "parts"  # the list that the values go to
        self.names_used = 0
        with self.source.block("def write(m, parts, chunks):"):
            with self.source.block("try:"):
                self._struct(message_class, "m", "")
                self._flush()
                self.source.add("return")
            with self.source.block("except FAILURES as error:"):
                self.source.add("raise unencodable(error) from error")

    def _struct(self, message_class: type[Message], name: str, path: str) -> None:
        present = [one for one in message_class.__schema__.fields if one.is_in(self.version)]
        for one in present:
            if one.tag is None:
                self._value(one, f"{name}.{one.name}", path + one.name)
        if self.is_flexible:
            self._tags([one for one in present if one.tag is not None], name, path)

    def _value(self, field: Field, value: str, path: str) -> None:
        is_nullable = field.is_nullable_in(self.version)
        if field.is_array:
            self._array(field.kind, is_nullable, value, path + "[]")
        elif not isinstance(field.kind, str):
            self._nested(field.kind, is_nullable, value, path)
        else:
            self._primitive(field.kind, is_nullable, value, path)

    def _primitive(self, kind: str, is_nullable: bool, value: str, path: str) -> None:
        if kind == "uuid":
            value = f"u if len(u := {value}) == {UUID_BYTES} else reject_uuid(u)"
        if kind in FIXED:
            self.run.append((FIXED[kind], value, path))
        elif kind == "string":
            self._string(is_nullable, value, path)
        elif kind == "bytes":
            self._bytes(is_nullable, value, path)
        else:
            self._records(is_nullable, value, path)

    def _string(self, is_nullable: bool, value: str, path: str) -> None:
        if is_nullable:
            size = self._size("len(s := s.encode())", "string")
            self._item(f"{self._null('h')} if (s := {value}) is None else {size} + s", path)
            return
        if self.is_flexible:
            self._item(self._size(f"len(s := {value}.encode())", "string"), path)
        else:
            self.run.append(("h", f"len(s := {value}.encode())", path))
        self._item("s", path)

    def _bytes(self, is_nullable: bool, value: str, path: str) -> None:
        if is_nullable:
            size = self._size("len(s)", "bytes")
            self._item(f"{self._null('i')} if (s := {value}) is None else {size}", path)
            self._item('b"" if s is None else s', path)
        else:
            self._item(self._size(f"len(s := {value})", "bytes"), path)
            self._item("s", path)

    def _records(self, is_nullable: bool, value: str, path: str) -> None:
        add, block = self.source.add, self.source.block
        r = "r" if is_nullable else f"(r := {value})"
        bytes_in_r = f"(sum(map(len, r)) if {r}.__class__ in SEVERAL else len(r))"
        size = self._size(bytes_in_r, "records")
        if is_nullable:
            size = f"{self._null('i')} if (r := {value}) is None else {size}"
        self._item(size, path)
        self._flush()
        with block("if r:", path):
            add("chunks.append(join(parts))", path)
            add("parts.clear()", path)
            with block("if r.__class__ in SEVERAL:", path):
                add("chunks += r", path)
            with block("else:", path):
                add("chunks.append(r)", path)

    def _nested(self, kind: type[Message], is_nullable: bool, value: str, path: str) -> None:
        name = self._fresh_name("m")
        self._flush()
        self.source.add(f"{name} = {value}", path)
        if not is_nullable:
            self._struct(kind, name, path + ".")
            return
        with self.source.block(f"if {name} is None:", path):
            self._item(_NULL["b"], path)
            self._flush()
        with self.source.block("else:"):
            self._item(r'b"\1"', path)
            self._struct(kind, name, path + ".")
            self._flush()

    def _array(self, kind: str | type[Message], is_nullable: bool, value: str, path: str) -> None:
        array = self._fresh_name("v")
        if is_nullable:
            size = self._size(f"len({array})", "array")
            null = self._null(ARRAY_COUNT)
            self._item(f"{null} if ({array} := {value}) is None else {size}", path)
            array_or_none = f"{array} or ()"
        else:
            self._item(self._size(f"len({array} := {value})", "array"), path)
            array_or_none = array
        if isinstance(kind, str) and kind in FIXED and kind != "uuid":
            packed = f'pack(f">{{len({array})}}{FIXED[kind]}", *{array})'
            self._item(f'{packed} if {array} else b""', path)
            return
        self._flush()
        element = self._fresh_name("m")
        with self.source.block(f"for {element} in {array_or_none}:", path):
            if isinstance(kind, str):
                self._primitive(kind, False, element, path)
            else:
                self._struct(kind, element, path + ".")
            self._flush()

    def _tags(self, tagged: list[Field], name: str, path: str) -> None:
        if not tagged:
            self.run.append(("x", "", path + "tags"))  # one zero byte
            return
        tagged = sorted(tagged, key=lambda one: one.tag or 0)
        self._flush()
        add, block = self.source.add, self.source.block
        defaults = [self._is_default(one, f"{name}.{one.name}") for one in tagged]
        with block(f"if {' and '.join(defaults)}:", path + "tags"):
            add(rf'{self.parts}.append(b"\0")')
        with block("else:"):
            tags, count = self._fresh_name("tags"), self._fresh_name("count")
            add(f"{tags} = []")
            add(f"{count} = 0")
            for one, is_default in zip(tagged, defaults, strict=True):
                with block(f"if not {is_default}:", path + one.name):
                    self._tag(one, f"{name}.{one.name}", path, tags)
                    add(f"{count} += 1")
            add(f"{self.parts}.append(UVARINT[{count}])")
            add(f"{self.parts} += {tags}")

    def _tag(self, field: Field, value: str, path: str, tags: str) -> None:
        outer, self.parts = self.parts, self._fresh_name("parts")
        where = path + field.name
        self.source.add(f"{self.parts} = []", where)
        self._value(field, value, where)
        self._flush()
        encoded = f"join({self.parts})"
        self.source.add(f"{tags} += (UVARINT[{field.tag}], UVARINT[len(s := {encoded})], s)", where)
        self.parts = outer

    def _is_default(self, field: Field, value: str) -> str:
        if field.default_factory is not None:
            return f"(not {value})"
        if isinstance(field.kind, type) and not field.is_array:
            default = self._fresh_name("DEFAULT")
            self.source.scope[default] = field.kind()
            return f"({value} is None or {value} == {default})"
        if field.default is None or isinstance(field.default, bool):
            return f"({value} is {field.default!r})"
        return f"({value} == {field.default!r})"

    def _size(self, size: str, kind: str) -> str:
        """An expression for the encoded size or count, itself given as an expression."""
        if self.is_flexible:
            return f"{'STRING_SIZE' if kind == 'string' else 'UVARINT'}[{size} + 1]"
        return f"pack_{SIZED.get(kind, ARRAY_COUNT)}({size})"

    def _null(self, older_form: str) -> str:
        return _NULL["B" if self.is_flexible else older_form]

    def _item(self, expression: str, path: str) -> None:
        self._close_run()
        self.items.append((expression, path))

    def _close_run(self) -> None:
        if not self.run:
            return
        formats = tuple([one[0] for one in self.run])
        values = ", ".join([one[1] for one in self.run if one[1]])
        first, last = self.run[0][2], self.run[-1][2]
        where = first if first == last else f"{first} .. {last}"
        self.run.clear()
        if not values:
            self.items.append((f"{bytes(len(formats))!r}", where))
            return
        function = f"pack_{layout_name(formats)}"
        self.source.scope[function] = layout(formats).pack
        self.items.append((f"{function}({values})", where))

    def _flush(self) -> None:
        self._close_run()
        items, self.items = self.items, []
        if len(items) == 1:
            expression, path = items[0]
            self.source.add(f"{self.parts}.append({expression})", path)
        elif items:
            with self.source.block(f"{self.parts} += ("):
                for expression, path in items:
                    self.source.add(f"{expression},", path)
            self.source.add(")")

    def _fresh_name(self, stem: str) -> str:
        self.names_used += 1
        return f"{stem}{self.names_used}"
