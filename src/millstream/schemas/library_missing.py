"""A library that comes with an extra of the package is not there: what to say."""

from millstream.base.errors import Rejected


class LibraryMissing(Rejected):
    def __init__(self, *, library: str, extra: str) -> None:
        super().__init__(
            f"{library} is not installed: run `pip install 'millstream[{extra}]'` for values "
            f"in {extra}"
        )
        self.library, self.extra = library, extra
