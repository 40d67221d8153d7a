"""A partition's state in a file, so that a start need not read the whole log. Derived: a file that
is missing, damaged or of another log is thrown away, and the log is read (docs/formats/events.md).

    magic   8 bytes   "MSEVENT1"
    digest  32 bytes  SHA-256 of the body
    body              MessagePack; numbers of events as arrays of little-endian int64
"""

import os
import sys
import time
from array import array
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from glob import escape
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp

import msgspec

from millstream.base.disk import make_private_directories
from millstream.base.errors import Corrupt
from millstream.eventsourcing.event_index import Seqs
from millstream.eventsourcing.partition_state import PartitionState, SeenCommand

MAGIC = b"MSEVENT1"
DIGEST_BYTES = 32
HASH_BYTES = 32
NEW_SUFFIX = ".new"
# Nobody takes so long to write a file: whoever began it is dead.
LEFT_OVER_SECONDS = 3_600.0


class DamagedIndex(Corrupt):
    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}. It is made again from the log")
        self.path, self.reason = path, reason


class Lists(msgspec.Struct, array_like=True):
    """Lists of numbers by name, one behind the other."""

    names: list[str]
    lengths: bytes
    numbers: bytes


class Body(msgspec.Struct):
    place: str
    seq: int
    end: int
    at: datetime | None
    last_hash: bytes
    command_ids_max: int
    streams: Lists
    hashes: bytes
    types: Lists
    tags: Lists
    first_versions: dict[str, int]
    run_seqs: bytes
    run_offsets: bytes
    commands: list[tuple[str, str, str, int, int]]
    event_ids: list[str] | None = None  # not in files of older versions


def write_index(path: Path, state: PartitionState) -> None:
    """In the place of the one before, in one step. Raises OSError, and leaves nothing then."""
    body = encode_index(state)
    make_private_directories(path.parent)
    _drop_left_over(path)
    # Another process may write the same file now: each has a name of its own.
    number, name = mkstemp(NEW_SUFFIX, f"{path.name}.", path.parent)
    try:
        with open(number, "wb") as file:
            file.write(MAGIC + sha256(body).digest() + body)
            file.flush()
            os.fdatasync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _drop_left_over(path: Path) -> None:
    """What those left who were killed while they wrote."""
    long_ago = time.time() - LEFT_OVER_SECONDS
    for one in path.parent.glob(f"{escape(path.name)}.*{NEW_SUFFIX}"):
        with suppress(FileNotFoundError):  # another has done it
            if one.stat().st_mtime < long_ago:
                one.unlink()


def read_index(path: Path, state: PartitionState) -> bool:
    """Fill an empty state; False if there is no file. Raises DamagedIndex and OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    head = len(MAGIC) + DIGEST_BYTES
    if data[: len(MAGIC)] != MAGIC or sha256(data[head:]).digest() != data[len(MAGIC) : head]:
        raise DamagedIndex(path=path, reason="its checksum is not that of its bytes")
    try:
        decode_index(data[head:], state)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamagedIndex(path=path, reason=str(error)) from None
    return True


def encode_index(state: PartitionState) -> bytes:
    index = state.index
    body = Body(
        place=state.place,
        seq=state.seq,
        end=state.end,
        at=state.at,
        last_hash=state.last_hash,
        command_ids_max=state.command_ids_max,
        streams=_packed(index.streams),
        hashes=b"".join(state.hashes[stream] for stream in index.streams),
        types=_packed(index.types),
        tags=_packed(index.tags),
        first_versions=index.first_versions,
        run_seqs=_to_bytes(state.runs.seqs),
        run_offsets=_to_bytes(state.runs.offsets),
        commands=[(id, *seen) for id, seen in state.commands.items()],
        event_ids=list(state.event_ids),
    )
    return msgspec.msgpack.encode(body)


def decode_index(data: bytes, state: PartitionState) -> None:
    """Into a state that is empty. ValueError if it is of another place, or knows too little."""
    body = msgspec.msgpack.decode(data, type=Body)
    if body.place != state.place:
        raise ValueError(f"it is that of {body.place}, not of {state.place}")
    if body.event_ids is None and body.seq:
        raise ValueError("it is of an older version, and does not remember ids of events")
    if body.command_ids_max < state.command_ids_max:
        raise ValueError(f"it remembers {body.command_ids_max:,} command ids, too few now")
    index = state.index
    index.streams, index.types = _unpacked(body.streams), _unpacked(body.types)
    index.tags, index.first_versions = _unpacked(body.tags), body.first_versions
    for at, stream in enumerate(body.streams.names):
        state.hashes[stream] = body.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES]
    state.runs.load(_from_bytes(body.run_seqs), _from_bytes(body.run_offsets))
    for id, print, stream, first_seq, length in body.commands[-state.command_ids_max :]:
        state.commands[id] = SeenCommand(print, stream, first_seq, length)
    state.note_events(body.event_ids or ())
    state.seq, state.end, state.at, state.last_hash = body.seq, body.end, body.at, body.last_hash
    state.recent.add(state.seq, ())


def _packed(lists: Mapping[str, Seqs]) -> Lists:
    lengths = array("q", [len(numbers) for numbers in lists.values()])
    numbers = b"".join(map(_to_bytes, lists.values()))
    return Lists(names=list(lists), lengths=_to_bytes(lengths), numbers=numbers)


def _unpacked(lists: Lists) -> dict[str, Seqs]:
    found, start, numbers = {}, 0, _from_bytes(lists.numbers)
    for name, length in zip(lists.names, _from_bytes(lists.lengths), strict=True):
        found[name] = numbers[start : start + length]
        start += length
    return found


def _to_bytes(numbers: Seqs) -> bytes:
    written = array("q", numbers)
    if sys.byteorder == "big":
        written.byteswap()
    return written.tobytes()


def _from_bytes(data: bytes) -> Seqs:
    numbers = array("q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
