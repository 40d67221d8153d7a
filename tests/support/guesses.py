"""Somebody who has every byte that is left and every key that is left, knows our code, and tries
values one by one: whether a hash of one of them, or a MAC by one of the keys, is stored anywhere.

All that is stored is looked at in pieces of 8 bytes, as it is, and as hexadecimal and base64 say
it. A hash that was cut to 8 bytes or more, wherever it is, so has its first 8 in them.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b, md5, sha1, sha256, sha512

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PIECE_BYTES = 8
HEXADECIMAL = re.compile(rb"[0-9a-f]{16,}|[0-9A-F]{16,}")
BASE64 = re.compile(rb"[A-Za-z0-9_+/-]{11,}")
# What our code puts before what it hashes, and what it derives keys with.
LABELS = (b"", b"millstream print\0", b"millstream subject\0")
DERIVATIONS = (b"millstream print 1", b"millstream snapshot 1:")
BLAKE_BYTES = (7, 8, 16, 32, 64)

Pieces = np.ndarray[tuple[int], np.dtype[np.uint64]]


def pieces_in(texts: Iterable[bytes]) -> Pieces:
    """Every piece of everything, once."""
    found = [_pieces_of(said) for text in texts for said in _readings(text)]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)


def _readings(text: bytes) -> Iterator[bytes]:
    yield text
    for match in HEXADECIMAL.finditer(text):
        for start in range(2):
            said = match[0][start:]
            yield binascii.unhexlify(said[: len(said) // 2 * 2])
    for match in BASE64.finditer(text):
        said = match[0].translate(bytes.maketrans(b"-_", b"+/"))
        for start in range(4):
            whole = (len(said) - start) // 4 * 4
            rest = said[start + whole :]
            padded = said[start:] + b"=" * (-len(rest) % 4) if len(rest) != 1 else said[start:-1]
            yield base64.b64decode(padded)


def _pieces_of(data: bytes) -> Pieces:
    rows = [
        np.frombuffer(data, "<u8", (len(data) - start) // PIECE_BYTES, start)
        for start in range(min(PIECE_BYTES, max(0, len(data) - PIECE_BYTES + 1)))
    ]
    return np.unique(np.concatenate(rows)) if rows else np.empty(0, np.uint64)


def derived(keys: Iterable[bytes]) -> list[bytes]:
    """The keys, and those that our code makes of each."""
    known = list(keys)
    made = [
        HKDF(SHA256(), 32, salt=None, info=info).derive(key)
        for key in known
        for info in DERIVATIONS
    ]
    return [*known, *made]


def found_by_trying(
    candidates: Mapping[str, Iterable[bytes]], pieces: Pieces, keys: Iterable[bytes]
) -> set[str]:
    """Which of the candidates some stored hash gives away. Each is given in all its spellings."""
    tried, names = bytearray(), []
    all_keys = derived(keys)
    for name, spellings in candidates.items():
        for spelling in spellings:
            for digest in _digests(spelling, all_keys):
                tried += digest[:PIECE_BYTES].ljust(PIECE_BYTES, b"\0")
                names.append(name)
    hits = np.isin(np.frombuffer(bytes(tried), "<u8"), pieces)
    return {names[index] for index in np.flatnonzero(hits)}


def _digests(said: bytes, keys: list[bytes]) -> Iterator[bytes]:
    for label in LABELS:
        for key in keys:
            yield hmac.digest(key, label + said, "sha256")
    yield from (one(said).digest() for one in (sha256, sha512, sha1, md5))
    for size in BLAKE_BYTES:
        if size >= PIECE_BYTES:
            yield blake2b(said, digest_size=size).digest()
