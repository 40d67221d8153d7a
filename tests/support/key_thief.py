"""Somebody who has every record that was ever in a topic of keys, and every key file that is left,
and tries each on each."""

import base64
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.eventsourcing.sealing import (
    DataKey,
    SealBroken,
    open_passing,
    open_snapshot,
    take_apart,
    unwrap_key,
)

# As records of the topic have them; a key of a record stands before its value.
RECORD = re.compile(
    rb'subject:([A-Za-z0-9_-]{22})[^{]{0,8}\{"generation":(\d+),"wrapping":"([^"]+)","key":"([^"]+)"'
)
SNAPSHOT = re.compile(
    rb'\{"stream":"([^"]+)","version":(\d+),"event":"[^"]*","fold":"[^"]*","state":null,'
    rb'"sealed":"([^"]+)"'
)
PASSING = re.compile(rb"sealed-passing:1:[a-z0-9-]+:[A-Za-z0-9_-]+")
TOKEN = re.compile(rb"sealed:1:[A-Za-z0-9_-]{22}\.\d+:[A-Za-z0-9_-]+")


def wrapped_in(texts: Iterable[bytes]) -> set[tuple[str, str, str]]:
    """Every wrapped key: its id, the name of its wrapping key, itself."""
    found = (match.groups() for text in texts for match in RECORD.finditer(text))
    return {
        (f"{hash.decode()}.{generation.decode()}", wrapping.decode(), key.decode())
        for hash, generation, wrapping, key in found
    }


def keys_left(texts: Iterable[bytes], files: Sequence[bytes]) -> list[bytes]:
    """Every key file, and every data key that one of them opens."""
    return [*files, *(key.secret for key in unwrapped(wrapped_in(texts), files))]


def tokens_in(texts: Iterable[bytes]) -> set[str]:
    """Every sealed value."""
    return {match[0].decode() for text in texts for match in TOKEN.finditer(text)}


def snapshots_in(texts: Iterable[bytes]) -> set[tuple[str, int, str]]:
    """Every sealed snapshot: its stream, its version, itself."""
    found = (match.groups() for text in texts for match in SNAPSHOT.finditer(text))
    return {(stream.decode(), int(version), box.decode()) for stream, version, box in found}


def passing_in(texts: Iterable[bytes], files: Iterable[bytes], place: str) -> set[bytes]:
    """What opens of the arguments that waited in a topic."""
    ciphers = [AESGCM(file) for file in files if len(file) in (16, 24, 32)]
    found = set()
    for token in {match[0].decode() for text in texts for match in PASSING.finditer(text)}:
        for cipher in ciphers:
            with contextlib.suppress(SealBroken):
                found.add(open_passing(token, cipher, place=place))
    return found


class StolenKeys:
    """Those that he has, as sealing asks for them."""

    def __init__(self, keys: Iterable[DataKey]) -> None:
        self._keys = {key.id: key for key in keys}

    def key_for(self, subject: str) -> DataKey:
        raise NotImplementedError

    def key_of(self, key_id: str) -> DataKey | None:
        return self._keys.get(key_id)


def opened_snapshot(
    snapshot: tuple[str, int, str], keys: Iterable[DataKey], place: str
) -> bytes | None:
    return open_snapshot(base64.b64decode(snapshot[2]), StolenKeys(keys), place=place)


def unwrapped(wrapped: Iterable[tuple[str, str, str]], files: Iterable[bytes]) -> Iterator[DataKey]:
    """`wrapped`: key id, name of the wrapping key, wrapped key. The names of files are not
    trusted: each is tried."""
    ciphers = [AESGCM(file) for file in files if len(file) in (16, 24, 32)]
    for key_id, wrapping_id, text in wrapped:
        for cipher in ciphers:
            try:
                yield DataKey(key_id, unwrap_key(text, key_id, cipher, wrapping_id))
            except SealBroken:
                continue


def opened(token: str, keys: Iterable[DataKey], files: Iterable[bytes] = ()) -> bytes | None:
    """What any of the keys, or a key file itself, opens it to."""
    sealed = take_apart(token, place="a stolen value")
    for key in keys:
        try:
            return key.open(sealed)
        except SealBroken:
            continue
    for file in files:
        try:
            return AESGCM(file).decrypt(sealed.nonce, sealed.box, None)
        except (InvalidTag, ValueError):
            continue
    return None
