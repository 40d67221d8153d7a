"""The watermark of a batch, from the log of offsets in the job's checkpoint.

Spark writes `<checkpoint>/offsets/N` before it plans batch N, and plans a batch that it repeats
from the same file: so all who judge by that file judge alike, however often. It has a line with its
version, one of JSON with the watermark, and one for each source with the end of its range:

    v2
    {"batchWatermarkMs":1794812671889, ...}
    orders:{"orders": {"id": "gEYzzvOaTDanjXnY9b0A6Q", "offsets": {"0": 498}}}

Reads local files, and others through pyarrow. Writes nothing.
"""

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlparse

from millstream.base.errors import Corrupt

OFFSETS, COMMITS = "offsets", "commits"
LOCAL_SCHEMES = ("", "file")
SOURCE_LINE = re.compile(r"^(?:[A-Za-z0-9_]+:)?(\{.*\})$")


class NotThisStream(Corrupt):
    """The newest batch of a checkpoint is not the one that is being planned."""

    def __init__(self, *, checkpoint: str, reason: str) -> None:
        super().__init__(
            f"The checkpoint {checkpoint} does not tell the watermark of this batch ({reason}): it "
            "is another one than the job runs with. Give its frames the checkpoint of the job"
        )
        self.checkpoint, self.reason = checkpoint, reason


def watermark_ms_of(checkpoint: str, end: dict[str, Any]) -> int:
    """The watermark of the batch being planned, whose range in our source ends at `end`."""
    numbers = batch_numbers(checkpoint)
    if not numbers:
        raise NotThisStream(checkpoint=checkpoint, reason="it has no batch yet")
    newest = max(numbers)
    text = _text(checkpoint, str(newest))
    if end not in ends_in(text):
        raise NotThisStream(checkpoint=checkpoint, reason=f"batch {newest} ends elsewhere")
    return watermark_ms_in(text)


def watermark_ms_in(text: str) -> int:
    """0 in the first batch: nothing was seen before it."""
    return int(json.loads(text.splitlines()[1])["batchWatermarkMs"])


def ends_in(text: str) -> list[dict[str, Any]]:
    """Where each source ends, without the names of sources that newer versions write."""
    found = map(SOURCE_LINE.match, text.splitlines()[2:])
    return [json.loads(match[1]) for match in found if match]


def batch_numbers(checkpoint: str, kept: str = OFFSETS) -> list[int]:
    """Of the batches that Spark has planned, or done, and not yet removed."""
    return [int(name) for name in _names(checkpoint, kept) if name.isdecimal()]


def _names(checkpoint: str, kept: str) -> Iterator[str]:
    if (local := local_path(checkpoint)) is not None:
        try:
            yield from os.listdir(os.path.join(local, kept))
        except FileNotFoundError:
            return
        return
    from pyarrow import fs

    store, path = store_of(checkpoint)
    wanted = fs.FileSelector(f"{path}/{kept}", allow_not_found=True)
    yield from (found.base_name for found in store.get_file_info(wanted))


def _text(checkpoint: str, name: str) -> str:
    if (local := local_path(checkpoint)) is not None:
        with open(os.path.join(local, OFFSETS, name), encoding="utf-8") as file:
            return file.read()
    store, path = store_of(checkpoint)
    with store.open_input_stream(f"{path}/{OFFSETS}/{name}") as stream:
        return bytes(stream.read()).decode("utf-8")


def store_of(checkpoint: str) -> tuple[Any, str]:
    """A file system of pyarrow's, and the path in it."""
    from pyarrow import fs

    store, path = fs.FileSystem.from_uri(checkpoint)
    return store, path.rstrip("/")


def local_path(checkpoint: str) -> str | None:
    """None when the checkpoint is not on this machine's disk."""
    found = urlparse(checkpoint)
    if found.scheme not in LOCAL_SCHEMES:
        return None
    return unquote(found.path) if found.scheme else checkpoint
