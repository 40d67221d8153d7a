"""A library that comes with an extra of the package is not there: what to say."""

from millstream.base.errors import Rejected


class LibraryMissing(Rejected):
    def __init__(self, *, library: str, extra: str, use: str = "") -> None:
        """`use` is what it is wanted for, if not for values in a format of that name."""
        super().__init__(
            f"{library} is not installed: run `pip install 'millstream[{extra}]'` for "
            f"{use or f'values in {extra}'}"
        )
        self.library, self.extra = library, extra
