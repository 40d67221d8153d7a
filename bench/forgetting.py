"""Question: what does sealing cost, and how long does an erasure take with many subjects?

Reproduce:  python -m bench.forgetting [--subjects 1000000] [--quick]

Seals and opens one field of an event with a key that is ready; makes keys for new subjects; then
fills a topic of keys and forgets one subject, which wraps all other keys anew. Everything on a
broker of its own, synced before it is answered. Results: docs/bench_events.md, or what it prints.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.embedded import Broker
from millstream.eventsourcing import key_book
from millstream.eventsourcing.key_book import KeyBook, Note, Remark, Subject
from millstream.eventsourcing.key_store import KeyDirectory
from millstream.eventsourcing.key_topic import KeyTopic
from millstream.eventsourcing.keyring import Keyring
from millstream.eventsourcing.personal import PersonalField
from millstream.eventsourcing.sealing import open_fields, seal_fields, to_text, wrap_key

SUBJECTS, SUBJECTS_QUICK = 1_000_000, 20_000
BATCH = 10_000
FIELDS, FIELDS_QUICK = 200_000, 20_000
NEW_KEYS = 200
FIELD = (PersonalField("email", "user"),)
DATA = {"user": "ada", "email": "ada.lovelace@example.org", "plan": "free"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=SUBJECTS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    subjects = SUBJECTS_QUICK if given.quick else given.subjects
    fields = FIELDS_QUICK if given.quick else FIELDS
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "data") as broker:
        client, store = {"bootstrap.servers": broker.bootstrap}, KeyDirectory(Path(folder) / "ring")
        keyring = Keyring(KeyTopic(client, "shop.keys"), store)
        measure_fields(keyring, fields)
        measure_new_keys(keyring)
        filling = KeyTopic(client, "shop.keys")
        report("fill", subjects, timed(lambda: fill(filling, store, subjects)), "keys")
        filling.close()
        other = Keyring(KeyTopic(client, "shop.keys"), store)
        report("first use (reads all)", subjects, timed(lambda: len(other)), "keys")
        report("forget one", subjects, timed(lambda: forget(other, "ada")), "keys")
        report("forget again", 1, timed(lambda: forget(other, "ada")), "erasures")
        print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MiB at most")
        other.close()
        keyring.close()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(what: str, count: int, seconds: float, noun: str) -> None:
    each = seconds / max(count, 1) * 1e6
    print(f"{what:24} {count:>9,} {noun} in {seconds:8.3f} s  {each:10.1f} µs each", flush=True)


def measure_fields(keyring: Keyring, count: int) -> None:
    sealed, _ = seal_fields(DATA, FIELD, keyring, stream="User:1", event_id="e1")

    def seal() -> None:
        for _ in range(count):
            seal_fields(DATA, FIELD, keyring, stream="User:1", event_id="e1")

    def open_all() -> None:
        for _ in range(count):
            open_fields(sealed, keyring, stream="User:1", event_id="e1")

    report("seal a field", count, timed(seal), "fields")
    report("open a field", count, timed(open_all), "fields")


def measure_new_keys(keyring: Keyring) -> None:
    def make() -> None:
        for number in range(NEW_KEYS):
            keyring.key_for(f"new-{number}")

    report("first key of a subject", NEW_KEYS, timed(make), "keys")


def fill(keys: KeyTopic, store: KeyDirectory, count: int) -> None:
    """Many subjects at once, as only a bench has them."""
    keys.refresh()
    ring = keys.book.ring
    assert ring is not None
    secret = store.load(ring.current)
    assert secret is not None
    wrapping = AESGCM(secret)

    def batch(_book: KeyBook, size: int) -> list[Note]:
        made = []
        for _ in range(size):
            hash = to_text(os.urandom(16))
            key = wrap_key(os.urandom(32), key_book.key_id(hash, 1), wrapping, ring.current)
            subject = Subject(generation=1, wrapping=ring.current, key=key)
            made.append(key_book.subject_note(hash, subject))
        return made

    for start in range(0, count, BATCH):
        keys.change(partial(batch, size=min(BATCH, count - start)))


def forget(keyring: Keyring, subject: str) -> None:
    keyring.forget([subject], Remark(datetime.now(UTC)))


if __name__ == "__main__":
    main()
