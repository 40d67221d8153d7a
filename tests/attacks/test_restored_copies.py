"""A copy of a job that somebody has made up runs nothing: not when it is restored, not when it is
looked into, and not when the job goes on from it."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from typer.testing import CliRunner

import millstream
from millstream.cli import app
from millstream.processing.jobs import checkpoints
from millstream.processing.jobs.checkpoints import JobDirectory, first_manifest
from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.operators.clock_skew import clocks_from
from millstream.processing.operators.row_changes import from_bytes
from millstream.processing.operators.window_changes import book_from
from millstream.processing.operators.window_state import OpenSession
from millstream.processing.state.checkpoint_copy import COPY, CopiedFile, copy_job
from millstream.processing.state.ordered_pages import OrderedPages
from millstream.processing.state.paged_map import PagedMap
from millstream.processing.state.plain_pickles import NotPlainState, load_plain
from millstream.processing.state.state_blobs import readable

SOURCES = Path(millstream.__file__).parent
SECONDS_MAX = 110
# Where pickles are read, and why that is no door.
UNPICKLING = {
    "processing/state/plain_pickles.py": "the restricted one: state, also of copies",
    "processing/jobs/definition.py": "of the job's own directory, never of a copy",
    "processing/reading/topic_read.py": "of an option that this process has just set",
    "processing/writing/staged_parts.py": "of tasks of the running job, from Spark",
    "broker/compactor_process.py": "over the pipes of a process that the broker has started",
}


class Calling:
    """Its pickle calls a function when it is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def evil(touched: Path) -> dict[str, bytes]:
    """Pickles that would make a file."""
    command = f"touch {touched}"
    return {
        "system": pickle.dumps(Calling(os.system, command), 5),
        "eval": pickle.dumps(Calling(eval, f"__import__('os').system({command!r})"), 5),
        "subprocess": pickle.dumps(Calling(subprocess.call, ["touch", str(touched)]), 5),
        "within": pickle.dumps((1, {"a": [Calling(os.system, command)]}), 5),
        "protocol 0": b"cos\nsystem\n(S'" + command.encode() + b"'\ntR.",
        "our own function": pickle.dumps(Calling(shutil.copyfile, "/etc/hostname", touched), 5),
        "through a module of ours": (
            b"cmillstream.processing.jobs.definition\npickle.loads\n(S'cos\\nsystem'\ntR."
        ),
    }


class OnePage:
    """A store that has these bytes on every page."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, name: str) -> bytes | None:
        return self.content

    def write(self, name: str, content: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


READERS: dict[str, Callable[[bytes], Any]] = {
    "windows": lambda kept: book_from(kept, None, "final"),  # type: ignore[arg-type]
    "clocks": clocks_from,
    "rows": from_bytes,
    "pages by key": lambda kept: PagedMap(OnePage(kept), "map"),
    "pages in order": lambda kept: OrderedPages(OnePage(kept), "pages", str)._page(7),
    "any": load_plain,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_state_of_ours_runs_what_is_in_it(reader: str, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    for kind, blob in evil(touched).items():
        with pytest.raises(NotPlainState, match="nothing of it was run"):
            READERS[reader](blob)
        assert not touched.exists(), kind


def test_nothing_is_run_when_a_state_is_looked_into(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    for blob in evil(touched).values():
        readable(blob)
    assert not touched.exists()


def changing(kind: type, name: str, value: bytes) -> bytes:
    """A pickle that sets an attribute of the type; `value`: what pushes it."""
    whose = f"c{kind.__module__}\n{kind.__qualname__}\n".encode()
    return (
        b"\x80\x05" + whose + b"N}\x8c" + bytes((len(name),)) + name.encode() + value + b"s\x86b."
    )


@pytest.mark.parametrize("kind", [Fraction, Row, OpenSession], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["__add__", "of_an_attacker", "__qualname__", "__doc__"])
def test_no_state_changes_what_the_program_is_made_of(kind: type, name: str) -> None:
    before = dict(vars(kind)) | {"name": kind.__qualname__}
    value = b"X\x04\x00\x00\x00evil" if name == "__qualname__" else b"cbuiltins\ntuple\n"
    with pytest.raises(NotPlainState):
        load_plain(changing(kind, name, value))
    assert dict(vars(kind)) | {"name": kind.__qualname__} == before


def test_no_class_is_reached_through_a_module_of_ours() -> None:
    through = b"cmillstream.processing.jobs.checkpoints\nPath\n)R."
    assert "Path" in vars(checkpoints)  # the control
    with pytest.raises(NotPlainState, match="not a plain type"):
        load_plain(through)
    again = b"cmillstream.processing.state.checkpoint_copy\nManifest\n."  # of another module
    with pytest.raises(NotPlainState, match="not a plain type"):
        load_plain(again)


def test_no_state_of_a_few_bytes_becomes_a_tuple_that_takes_all_memory() -> None:
    with pytest.raises(NotPlainState, match=r"builtins\.range is not a plain type"):
        load_plain(b"cbuiltins\ntuple\n(cbuiltins\nrange\n(L100000000000L\ntRtR.")


def test_the_attack_would_work_on_another_reader(tmp_path: Path) -> None:
    """The control."""
    pickle.loads(evil(tmp_path / "touched")["system"])
    assert (tmp_path / "touched").exists()


def test_pickles_are_read_in_these_places_alone() -> None:
    reads = re.compile(
        r"\b(?:pickle|cloudpickle)\.(?:loads?|Unpickler)\b"
        r"|\bfrom (?:_?pickle|cloudpickle)\b.*import|\b(?:dill|joblib|shelve|marshal)\b"
        r"|\bpyspark\S*serializers\b"
    )
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if reads.search(path.read_text())
    }
    assert found == UNPICKLING.keys()


# --- the copy itself --------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Of a job that has run."""
    job = JobDirectory(tmp_path / "theirs" / "jobs" / "counts", job="counts")
    job.write(first_manifest("counts", PlanShape(sources={}), "code", {}))
    (job.checkpoint(1) / "offsets").mkdir(parents=True)
    (job.checkpoint(1) / "metadata").write_text('{"id": "a"}')
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    return tmp_path / "copy"


def restore(copy: Path, data: Path, job: str = "counts") -> tuple[int, str]:
    asked = ["state", "restore", job, str(copy), "--data", str(data), "--yes"]
    found = CliRunner().invoke(app, asked)
    return found.exit_code, found.output


def name_in_copy(copy: Path, name: str, content: bytes) -> None:
    """As somebody would who makes a copy up: its list of files says what is there."""
    import hashlib

    facts = json.loads((copy / COPY).read_bytes())
    digest = hashlib.sha256(content).hexdigest()
    facts["files"][name] = {"bytes": len(content), "sha256": digest}
    assert CopiedFile(**facts["files"][name])
    (copy / COPY).write_text(json.dumps(facts))


def test_a_sound_copy_is_restored(copy: Path, tmp_path: Path) -> None:
    """The control."""
    code, told = restore(copy, tmp_path / "ours")
    assert code == 0, told
    assert (tmp_path / "ours" / "jobs" / "counts" / "checkpoint-1" / "metadata").exists()


def test_a_file_that_the_copy_does_not_name_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "checkpoint" / "state").mkdir()
    (copy / "checkpoint" / "state" / "more").write_bytes(b"more")
    code, told = restore(copy, tmp_path / "ours")
    assert code != 0
    assert "is not named in copy.json" in told
    assert not list((tmp_path / "ours").rglob("manifest.json"))


def test_a_link_out_of_the_copy_is_refused(copy: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"a password")
    (copy / "checkpoint" / "link").symlink_to(secret)
    name_in_copy(copy, "checkpoint/link", b"a password")
    code, told = restore(copy, tmp_path / "ours")
    assert code != 0
    assert "leads out of the copy" in told
    assert not [one for one in (tmp_path / "ours").rglob("*") if one.name == "link"]


def test_a_name_out_of_the_copy_is_refused(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"a password")
    name_in_copy(copy, "checkpoint/../../secret", b"a password")
    code, told = restore(copy, tmp_path / "ours")
    assert code != 0
    assert "leads out of the copy" in told


OUT_OF_IT = [
    "../../../.profile",
    "/etc/profile",
    "..",
    "a/b.sst",
    ".profile",
    "a\\b",
    "",
    7,
]


def archive_in(copy: Path, local_name: object, *, entry: str = "MANIFEST-000005") -> Path:
    """As Spark keeps RocksDB's files."""
    files = [{"localFileName": local_name, "dfsSstFileName": "000008-a.sst", "sizeBytes": 4}]
    path = copy / "checkpoint" / "state" / "0" / "0" / "1.zip"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, b"manifest")
        archive.writestr("metadata", b"v1\n" + json.dumps({"sstFiles": files}).encode())
    name_in_copy(copy, "checkpoint/state/0/0/1.zip", path.read_bytes())
    return path


@pytest.mark.parametrize("name", OUT_OF_IT)
def test_an_archive_of_state_puts_no_file_elsewhere(
    copy: Path, tmp_path: Path, name: object
) -> None:
    """Spark itself would: it was tried, with a name that begins with ../"""
    archive_in(copy, name)
    code, told = restore(copy, tmp_path / "ours")
    assert code != 0
    assert "is no name of a file of RocksDB" in told
    assert not list((tmp_path / "ours").rglob("*.zip"))


def test_an_archive_of_state_is_restored_as_it_was_checked(copy: Path, tmp_path: Path) -> None:
    """Spark reads entries from the beginning; who reads the table at the end sees others."""
    path = archive_in(copy, "000008.sst")
    sound = path.read_bytes()
    with zipfile.ZipFile(path, "w") as hidden:
        hidden.writestr("metadata", b"v1\n{}")
    path.write_bytes(path.read_bytes()[:-22] + sound)  # without its end: only a stream sees it
    name_in_copy(copy, "checkpoint/state/0/0/1.zip", path.read_bytes())
    code, told = restore(copy, tmp_path / "ours")
    assert code == 0, told
    [found] = (tmp_path / "ours").rglob("1.zip")
    assert found.read_bytes()[30:45] == b"MANIFEST-000005"  # the name of the first entry
    with zipfile.ZipFile(found) as archive:
        assert archive.namelist() == ["MANIFEST-000005", "metadata"]
        assert b"000008.sst" in archive.read("metadata")


def test_a_function_in_a_copy_does_not_get_into_the_job(copy: Path, tmp_path: Path) -> None:
    """`definition-N.pickle` is run when a job goes on: it is of this job's own directory alone."""
    touched = tmp_path / "touched"
    for name in ("definition-1.pickle", "checkpoint/definition-1.pickle"):
        content = evil(touched)["system"]
        (copy / name).write_bytes(content)
        name_in_copy(copy, name, content)
    code, told = restore(copy, tmp_path / "ours")
    assert code == 0, told
    job = JobDirectory(tmp_path / "ours" / "jobs" / "counts", job="counts")
    assert job.definition(1) is None
    assert not touched.exists()


# --- a whole job ------------------------------------------------------------------------------

JOB = """
import sys
from pathlib import Path
from millstream.processing.operators import windows
from millstream.processing.session import open_session
session = open_session("counts", master="local[1]", quick_start=True, log_level="off")
clicks = session.readStream.schema("user STRING, at TIMESTAMP").name("clicks").json(sys.argv[1])
clicks = clicks.withWatermark("at", "1 minute")
counts = windows.aggregate(
    clicks, windows.session("10 seconds", on="at"), by="user", of={"n": windows.count()}, slots=1
)
to = counts.writeStream.format("noop").outputMode("update")
try:
    query = to.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
    query.awaitTermination()
    print("it ran")
except Exception as error:
    print(error)
session.stop()
"""
ADA = '{"user": "ada", "at": "2026-07-01T12:00:0%dZ"}'


def run_job(sources: Path, clicks: Path, checkpoint: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", JOB, str(clicks), str(checkpoint)],
        env=os.environ | {"PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.full
def test_a_job_that_goes_on_from_a_made_up_copy_runs_nothing_of_it(tmp_path: Path) -> None:
    """Somebody's own Millstream wrote the state, as they wanted it."""
    touched, clicks = tmp_path / "touched", tmp_path / "clicks"
    clicks.mkdir()
    shutil.copytree(SOURCES, tmp_path / "theirs" / "millstream")
    writer = tmp_path / "theirs" / "millstream" / "processing" / "state" / "plain_pickles.py"
    writer.write_text(
        f"{writer.read_text()}\n\ndef dump_plain(value):\n    return {evil(touched)['system']!r}\n"
    )
    theirs = JobDirectory(tmp_path / "their.millstream" / "jobs" / "counts", job="counts")
    theirs.write(first_manifest("counts", PlanShape(sources={}), "code", {}))
    (clicks / "1.json").write_text(ADA % 0)
    assert "it ran" in run_job(tmp_path / "theirs", clicks, theirs.checkpoint(1))
    copy_job(theirs, tmp_path / "copy", view=None, now_ms=7)

    code, told = restore(tmp_path / "copy", tmp_path / "ours")
    assert code == 0, told
    ours = JobDirectory(tmp_path / "ours" / "jobs" / "counts", job="counts")
    (clicks / "2.json").write_text(ADA % 1)
    said = run_job(SOURCES.parent, clicks, ours.checkpoint(1))
    assert "nothing of it was run" in said
    assert "it ran" not in said
    assert not touched.exists()
