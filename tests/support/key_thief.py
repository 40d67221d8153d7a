"""Somebody who has every record that was ever in a topic of keys, and every key file that is left,
and tries each on each."""

from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.eventsourcing.sealing import DataKey, SealBroken, take_apart, unwrap_key


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
