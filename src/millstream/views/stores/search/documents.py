"""Rows as documents of a full-text index, and back, without loss. Pure.

    _key    one term: the key's values as JSON, or a digest of them if they are long
    _row    stored: the row's values as JSON, in the order of the columns
    title   one field for each column that is searched: its words

One more document, whose _key is no JSON, has the state of the generation. It is replaced in the
commit of each batch, and so is true together with the rows.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.base.schema import ListOf, Scalar
from millstream.schemas.library_missing import LibraryMissing
from millstream.views.store import Row
from millstream.views.stores.sqlite.values import reading, storing
from millstream.views.stores.stored_keys import settled
from millstream.views.table_layout import BadView, TableLayout

try:
    from tantivy import Document as Document
    from tantivy import Filter, SchemaBuilder, TextAnalyzerBuilder, Tokenizer
    from tantivy import Index as Index
    from tantivy import Query as Query
    from tantivy import Schema as IndexSchema
except ModuleNotFoundError:
    raise LibraryMissing(library="tantivy", extra="search", use="full-text views") from None

KEY, ROW = "_key", "_row"
STATE_KEY = "state"
# A term of an index has at most 65,530 bytes, and short ones are quicker.
KEY_CHARACTERS_MAX = 500
# A longer "word" is no word, but encoded data.
WORD_BYTES_MAX = 100
ANALYZER = "words"
TEXT_TYPES = (Scalar.STRING, ListOf(Scalar.STRING))


def index_schema(text: Sequence[str]) -> IndexSchema:
    builder = SchemaBuilder()
    builder.add_text_field(KEY, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(ROW, stored=True)
    for name in text:
        builder.add_text_field(name, tokenizer_name=ANALYZER)
    return builder.build()


def add_analyzer(index: Index, language: str | None) -> None:
    """What makes words of a text: in small letters, without accents; in a language, their stems."""
    builder = TextAnalyzerBuilder(Tokenizer.simple())
    builder = builder.filter(Filter.remove_long(WORD_BYTES_MAX)).filter(Filter.lowercase())
    if language is not None:
        builder = builder.filter(Filter.stemmer(language))
    index.register_tokenizer(ANALYZER, builder.filter(Filter.ascii_fold()).build())


def searched(layout: TableLayout, text: Sequence[str] | None) -> tuple[str, ...]:
    """The columns whose words are found: those that are named, or all that are text."""
    known = [field.name for field in layout.schema if field.type in TEXT_TYPES]
    for name in known if text is None else text:
        if name not in known:
            raise BadView(
                f"view {layout.view}: {name} is to be searched, but is no STRING or ARRAY<STRING> "
                f"of it ({', '.join(known) or 'it has none'})"
            )
        if name in (KEY, ROW):
            raise BadView(f"view {layout.view}: the index has a field {name} of its own: rename it")
    return tuple(known if text is None else text)


def key_writer(layout: TableLayout) -> Callable[[Row], str]:
    """What makes the term of a row, or of a whole key by name; one term for equal keys."""
    plain = storing(layout.key_schema)

    def write(row: Mapping[str, Any]) -> str:
        text = _json(plain(settled(layout.key_schema, row)))
        if len(text) <= KEY_CHARACTERS_MAX:
            return text
        return f"[sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    return write


def row_writer(layout: TableLayout, text: Sequence[str]) -> Callable[[Row, str], Document]:
    plain = storing(layout.schema)

    def write(row: Row, key: str) -> Document:
        document = Document()
        document.add_text(KEY, key)
        document.add_bytes(ROW, _json(plain(row)).encode())
        for name in text:
            for words in _texts(row[name]):
                document.add_text(name, words)
        return document

    return write


def row_reader(layout: TableLayout) -> Callable[[Document], Row]:
    unplain = reading(layout.schema)

    def read(document: Document) -> Row:
        row: Row = unplain(_stored(document))
        return row

    return read


def state_document(facts: Mapping[str, Any]) -> Document:
    document = Document()
    document.add_text(KEY, STATE_KEY)
    document.add_bytes(ROW, _json(facts).encode())
    return document


def facts_of(document: Document) -> dict[str, Any]:
    found: dict[str, Any] = _stored(document)
    return found


def _stored(document: Document) -> Any:
    (content,) = document[ROW]
    return json.loads(bytes(content))


def _texts(value: Any) -> Sequence[str]:
    if value is None:
        return ()
    return [value] if isinstance(value, str) else [one for one in value if one is not None]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
