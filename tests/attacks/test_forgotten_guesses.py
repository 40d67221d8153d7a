"""Who has everything that is left after an erasure, all keys and our code, and tries all birthdays,
flags or telephone numbers one by one, finds none. Nor does the length of anything tell them apart.
"""

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import millstream as ms
from millstream.base.ports import BatchReceipt
from millstream.base.record import Record
from millstream.eventsourcing.command_calls import call_of
from millstream.eventsourcing.query import Query
from millstream.schemas.declaration import schema_of
from millstream.views.stores.sqlite.file import SqliteStore
from millstream.web.keyed_publisher import KeyedPublisher
from millstream.web.topic_requests import PRINTER
from tests.support import byte_search, guesses, key_thief
from tests.support.batches import read_span

COMMAND_SECONDS_MAX = 60
VIEW = "patient STRING, born STRING"


class Sex(StrEnum):
    F = "female"
    D = "diverse"


@ms.event(subject="patient")
class Told:
    patient: str
    smokes: ms.Personal[bool | None] = None
    sex: ms.Personal[Sex | None] = None
    born: ms.Personal[date | None] = None
    postcode: ms.Personal[str | None] = None
    phone: ms.Personal[str | None] = None
    children: ms.Personal[int | None] = None


NAMES = ("smokes", "sex", "born", "postcode", "phone", "children")


class Patient(ms.Aggregate):
    smokes: bool | None = None
    sex: Sex | None = None
    born: date | None = None
    postcode: str | None = None
    phone: str | None = None
    children: int | None = None

    def tell_smokes(self, patient: str, smokes: bool | None) -> Iterator[Told]:
        yield Told(patient, smokes=smokes)

    def tell_sex(self, patient: str, sex: Sex | None) -> Iterator[Told]:
        yield Told(patient, sex=sex)

    def tell_born(self, patient: str, born: date | None) -> Iterator[Told]:
        yield Told(patient, born=born)

    def tell_postcode(self, patient: str, postcode: str | None) -> Iterator[Told]:
        yield Told(patient, postcode=postcode)

    def tell_phone(self, patient: str, phone: str | None) -> Iterator[Told]:
        yield Told(patient, phone=phone)

    def tell_children(self, patient: str, children: int | None) -> Iterator[Told]:
        yield Told(patient, children=children)

    def on_Told(self, event: Told) -> None:  # noqa: N802 - the name of the event
        for name in NAMES:
            setattr(self, name, getattr(event, name))


TRUE_BIRTHDAY = date(1984, 7, 13)
ONE = {
    "smokes": True,
    "sex": Sex.F,
    "born": TRUE_BIRTHDAY,
    "postcode": "10115",
    "phone": "+49 30 901820",
    "children": 0,
}
# As different as they may be in length, too.
OTHER = {
    "smokes": None,
    "sex": Sex.D,
    "born": None,
    "postcode": "SW1A 2AA",
    "phone": "112",
    "children": 12,
}
DICTIONARY: Mapping[str, Sequence[Any]] = {
    "smokes": (True, False, None),
    "sex": (*Sex, None),
    "born": [*(date(1980, 1, 1) + timedelta(days) for days in range(3_652)), None],
    "postcode": ("10115", "10116", "SW1A 2AA", None),
    "phone": ("112", "+49 30 901820", "+49 30 901821", None),
    "children": (*range(20), None),
}


@dataclass
class Clinic:
    """An application with a patient, whose data is in all the places that there are."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "clinic.millstream"

    @property
    def keyring(self) -> Path:
        return self.root / "clinic.millstream.keyring"

    @property
    def stolen(self) -> Path:
        """What somebody took before the erasure, without the keyring, which opens it."""
        return self.root / "backup"

    def open(self) -> ms.App:
        return ms.App("clinic", data=self.data)

    def fill(self, values: Mapping[str, Any]) -> None:
        with self.open() as app:
            patients = app.aggregates(Patient, snapshot_every=3, partitions=1)
            for name, value in values.items():
                tell = getattr(patients["ada"], f"tell_{name}")
                tell("ada", value, id=f"direct-{name}")
            patients["bob"].tell_born("bob", date(1999, 9, 9), id="of-bob")
            with app.hosting():  # over the topic of commands
                for name, value in values.items():
                    tell = getattr(patients["ada"], f"tell_{name}")
                    tell("ada", value, id=f"topic-{name}", wait=False).result(COMMAND_SECONDS_MAX)
            self._keep_view(app)
        shutil.copytree(self.data, self.stolen)

    def _keep_view(self, app: ms.App) -> None:
        """As a job would: what is sealed in the topic is a text of the view."""
        found = app.event_store().query(Query(types=["Told"]), partition=0)
        rows = [{"patient": one.id, "born": msgspec.json.decode(one.data)["born"]} for one in found]
        view = SqliteStore(self.data / "births.sqlite", view="births", key=["patient"]).writer(1)
        epoch = view.claim("births", schema_of(VIEW))
        receipt = BatchReceipt(job="births", epoch=epoch, query="a", batch=0, positions={})
        view.write(receipt, pa.Table.from_pylist(rows))
        view.close()

    def forget(self, subject: str = "ada") -> None:
        with self.open() as app:
            assert app.forget(subject, why="she asked").guessable == 0

    # --- the attacker -------------------------------------------------------------------------

    def texts(self) -> list[bytes]:
        return [text for _, text in byte_search.texts_in(self.root)]

    def key_files(self) -> list[bytes]:
        return [file.read_bytes() for file in sorted(self.keyring.iterdir())]

    def guessed(self) -> dict[str, set[str]]:
        """By field, which values of the dictionary are found by trying."""
        texts = self.texts()
        pieces, keys = guesses.pieces_in(texts), key_thief.keys_left(texts, self.key_files())
        return {
            name: found
            for name, values in DICTIONARY.items()
            if (
                found := guesses.found_by_trying(
                    {str(value): spellings(name, value) for value in values}, pieces, keys
                )
            )
        }

    def opened(self) -> set[bytes]:
        """What opens with all keys and key files that are left."""
        texts = self.texts()
        files = self.key_files()
        keys = list(key_thief.unwrapped(key_thief.wrapped_in(texts), files))
        values = [key_thief.opened(one, keys, files) for one in key_thief.tokens_in(texts)]
        passing = [
            one
            for name in NAMES
            for one in key_thief.passing_in(texts, files, f"Patient:ada tell_{name}")
        ]
        return {one for one in (*values, *passing) if one is not None}

    def lengths(self) -> dict[str, list[tuple[int, ...]]]:
        """Of key, value and headers of each record of each topic, and of each row of the view.
        Which records share a batch, and their times, is chance."""
        found = defaultdict[str, list[tuple[int, ...]]](list)
        for segment in sorted(self.data.rglob("*.log")):
            topic = segment.parent.name
            if byte_search.SEGMENT.fullmatch(segment.name) and topic.startswith("clinic."):
                whole = memoryview(segment.read_bytes())
                found[topic] += [record_lengths(one) for one in read_span(whole)]
        view = SqliteStore(self.data / "births.sqlite", view="births", key=["patient"]).reader()
        found["births"] = [(len(row["patient"]), len(row["born"] or "")) for row in view.scan()]
        view.close()
        return found


def spellings(name: str, value: Any) -> Iterator[bytes]:
    """What our code may hash of it: alone, in its event, its command, its arguments, its row."""
    yield str(value).encode()
    yield msgspec.json.encode(value)
    yield msgspec.json.encode({name: value})
    arguments = {"patient": "ada", name: value}
    yield msgspec.json.encode(arguments)
    yield json.dumps(arguments, default=str).encode()
    yield call_of(Patient.__plan__, f"tell_{name}", ("ada", value), {}).encoded()


def record_lengths(record: Record) -> tuple[int, ...]:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b""), len(record.value or b""), headers


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Clinic, Clinic]:
    """Two that differ in the values of a patient alone."""
    both = []
    for name, values in (("one", ONE), ("other", OTHER)):
        clinic = Clinic(tmp_path_factory.mktemp(name))
        clinic.fill(values)
        both.append(clinic)
    return both[0], both[1]


def test_what_was_forgotten_is_not_found_by_trying_every_value(
    clinics: tuple[Clinic, Clinic],
) -> None:
    clinic, other = clinics
    # The control: with the keys that there are before, the attack works.
    before = clinic.guessed()
    assert {name: before.get(name) for name in NAMES} == {
        name: {str(value)} for name, value in ONE.items()
    }
    assert b'"1984-07-13"' in clinic.opened()
    for one in (clinic, other):
        one.forget()
    assert clinic.guessed() == {}
    assert other.guessed() == {}
    assert clinic.opened() == other.opened() == {b'"1999-09-09"', b"null"}


def test_no_length_tells_one_value_from_another(clinics: tuple[Clinic, Clinic]) -> None:
    one, other = clinics[0].lengths(), clinics[1].lengths()
    topics = ("events", "commands", "replies", "snapshots", "keys")
    assert {f"clinic.{topic}-0" for topic in topics} <= one.keys()
    assert all(one[f"clinic.{topic}-0"] for topic in topics)
    assert one["births"]
    assert one == other


def test_rows_that_were_published_under_a_key_are_not_found_by_trying(tmp_path: Path) -> None:
    """The rows may be deleted long before the record of the key."""
    body = b'{"patient":"ada","born":"1984-07-13"}'
    with ms.Broker(data_dir=tmp_path / "log") as broker:
        publisher = KeyedPublisher(
            "clinic",
            lambda: {"bootstrap.servers": broker.bootstrap},
            keep_ms=100_000,
            bytes_max=1 << 20,
            now_ms=lambda: 0,
        )
        publisher.publish("a-key", PRINTER.print_of(body), "births", [Record(value=body)])
        publisher.close()
    texts = [text for _, text in byte_search.texts_in(tmp_path)]
    assert any(b"a-key" in text for text in texts)
    candidates = {"born": [body, json.dumps(json.loads(body)).encode()]}
    formerly = guesses.pieces_in([sha256(body).hexdigest().encode()])
    assert guesses.found_by_trying(candidates, formerly, []) == {"born"}  # the control
    assert guesses.found_by_trying(candidates, guesses.pieces_in(texts), []) == set()


def test_no_other_process_can_make_the_print_of_a_request() -> None:
    """Else whoever has the record of the key tries all rows by our own code."""
    program = "from millstream.web.topic_requests import PRINTER; print(PRINTER.print_of(b'rows'))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    mark, _, print_of_rows = ran.stdout.strip().partition(":")
    our_mark, _, ours = PRINTER.print_of(b"rows").partition(":")
    assert mark != our_mark
    assert print_of_rows != ours
