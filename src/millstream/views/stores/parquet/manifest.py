"""What a view in Parquet files consists of: one file of JSON, which is replaced as a whole. Pure.

Files that it does not list are not part of the view. The files of a change that took others' place
are listed as `dropped` until readers of the former manifest can have ended.
docs/formats/parquet_views.md shows one.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from millstream.base.errors import Corrupt
from millstream.views.receipts import Place
from millstream.views.view_book import (
    GenerationState,
    ViewBook,
    book_from,
    state_from,
)

FORMAT = 1
MANIFEST = "manifest.json"


class ManifestDamaged(Corrupt):
    def __init__(self, *, place: Place, problem: str) -> None:
        super().__init__(f"{place}: not the manifest of a view ({problem}). Rebuild the view")
        self.place, self.problem = place, problem


@dataclass(frozen=True, slots=True)
class KeptFile:
    """`name` is its path within the view's directory."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGeneration:
    state: GenerationState
    files: tuple[KeptFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`serial` numbers files: no name is used for two. `dropped` has files, and since when."""

    book: ViewBook = field(default_factory=ViewBook)
    generations: Mapping[int, KeptGeneration] = field(default_factory=dict)
    serial: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def served(self) -> KeptGeneration | None:
        return None if self.book.served is None else self.generations[self.book.served]

    def with_book(self, book: ViewBook, *, now_ms: int) -> Self:
        """Generations that are not in the book any more go, with their files."""
        kept = {one: found for one, found in self.generations.items() if one in book.born}
        gone = [self.generations[one] for one in self.generations if one not in kept]
        files = [file for one in gone for file in one.files]
        return replace(self, book=book, generations=kept, dropped=self._dropped_with(files, now_ms))

    def with_files(
        self, generation: int, found: KeptGeneration, *, serial: int, now_ms: int
    ) -> Self:
        before = self.generations.get(generation)
        gone = set(before.files if before else ()) - set(found.files)
        return replace(
            self,
            generations=dict(sorted({**self.generations, generation: found}.items())),
            serial=serial,
            dropped=self._dropped_with(gone, now_ms),
        )

    def without_dropped(self, *, before_ms: int) -> tuple[Self, list[str]]:
        """Also the names of files that nobody needs any more."""
        old = [name for name, at_ms in self.dropped.items() if at_ms < before_ms]
        kept = {name: at_ms for name, at_ms in self.dropped.items() if name not in old}
        return replace(self, dropped=kept), old

    def names(self) -> set[str]:
        """Of all files that are in use, or were a moment ago."""
        live = {file.name for one in self.generations.values() for file in one.files}
        return live | set(self.dropped)

    def _dropped_with(self, files: Iterable[KeptFile], now_ms: int) -> Mapping[str, int]:
        return {**self.dropped, **{file.name: now_ms for file in files}}


def manifest_to_json(manifest: Manifest) -> bytes:
    served = manifest.served
    facts = {
        "format": FORMAT,
        "files": [file.name for file in served.files] if served else [],
        "book": manifest.book.facts(),
        "generations": {
            str(number): {**one.state.facts(), "files": [[f.name, f.rows] for f in one.files]}
            for number, one in manifest.generations.items()
        },
        "serial": manifest.serial,
        "dropped": manifest.dropped,
    }
    return json.dumps(facts, ensure_ascii=False, indent=1).encode()


def manifest_from_json(content: bytes, *, path: Path) -> Manifest:
    try:
        facts = json.loads(content)
        if facts["format"] > FORMAT:
            problem = f"format {facts['format']}, this version reads up to {FORMAT}: upgrade"
            raise ManifestDamaged(place=path, problem=problem)
        return _manifest(facts)
    except (ValueError, KeyError, TypeError) as error:
        raise ManifestDamaged(place=path, problem=f"{type(error).__name__}: {error}") from error


def _manifest(facts: Mapping[str, Any]) -> Manifest:
    return Manifest(
        book=book_from(facts["book"]),
        generations={int(number): _kept(one) for number, one in facts["generations"].items()},
        serial=facts["serial"],
        dropped=facts["dropped"],
    )


def _kept(facts: Mapping[str, Any]) -> KeptGeneration:
    files = tuple(KeptFile(name, rows) for name, rows in facts["files"])
    return KeptGeneration(state=state_from(facts), files=files)
