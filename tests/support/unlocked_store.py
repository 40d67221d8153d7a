"""An object store in a directory: nothing keeps two writers apart but the manifest."""

from pathlib import Path

from pyarrow.fs import LocalFileSystem

from millstream.archive.stores import ObjectStore


class UnlockedStore(ObjectStore):
    """Makes the folders that an object store does not need."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalFileSystem(), str(root), place=str(root))
        self._directories = root

    def write(self, path: str, content: bytes) -> None:
        (self._directories / path).parent.mkdir(parents=True, exist_ok=True)
        super().write(path, content)
