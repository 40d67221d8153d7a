"""Pages in a dictionary, as Spark's state keeps them; counts what is read and written."""

from dataclasses import dataclass, field


@dataclass
class PageDictionary:
    """A PageStore of tests."""

    pages: dict[str, bytes] = field(default_factory=dict)
    reads: int = 0
    writes: int = 0

    def read(self, name: str) -> bytes | None:
        self.reads += 1
        return self.pages.get(name)

    def write(self, name: str, page: bytes) -> None:
        self.writes += 1
        self.pages[name] = page

    def remove(self, name: str) -> None:
        self.pages.pop(name, None)
