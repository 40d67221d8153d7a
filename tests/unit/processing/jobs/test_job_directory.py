"""The directory of a job: whose it is, its generations, what is frozen in it."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.processing.jobs.checkpoints import (
    DamagedManifest,
    ForeignCheckpoint,
    JobDirectory,
    JobInUse,
    Manifest,
    NothingBefore,
    decode_manifest,
    encode_manifest,
    first_manifest,
    frozen_differences,
    next_generation,
)
from millstream.processing.jobs.plan_shape import Operator, PlanShape

SHAPE = PlanShape(
    sources={"clicks": "clicks"},
    operators=(Operator(kind="aggregation", keys=("url",), state=("count(1)",)),),
    watermarks={"at": "10 minutes"},
    output="a view by url",
)
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def manifest() -> Manifest:
    return first_manifest("per_url", SHAPE, "c0de", {PARTITIONS: "2"})


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return JobDirectory(tmp_path / "jobs" / "per_url", job="per_url")


def test_a_job_that_never_ran_has_no_manifest(directory: JobDirectory) -> None:
    assert directory.manifest() is None


def test_a_manifest_is_read_as_it_was_written(directory: JobDirectory, manifest: Manifest) -> None:
    directory.write(manifest)
    assert directory.manifest() == manifest
    assert directory.checkpoint(1) == directory.path / "checkpoint-1"


def test_a_checkpoint_of_another_job_is_refused(
    directory: JobDirectory, manifest: Manifest
) -> None:
    directory.write(replace(manifest, job="per_user"))
    with pytest.raises(ForeignCheckpoint, match=r"job per_url: .*per_url is of job per_user"):
        directory.manifest()


def test_a_checkpoint_without_a_manifest_is_refused(directory: JobDirectory) -> None:
    directory.checkpoint(1).mkdir(parents=True)
    with pytest.raises(ForeignCheckpoint, match="an unknown job"):
        directory.manifest()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff", b'{"format": 9}', b'{"format": 1}']
)
def test_what_is_no_manifest_is_told(directory: JobDirectory, content: bytes) -> None:
    directory.path.mkdir(parents=True)
    (directory.path / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedManifest, match=r"manifest\.json is not a job's manifest"):
        directory.manifest()


def test_a_manifest_cut_at_any_byte_is_never_taken(manifest: Manifest) -> None:
    whole = encode_manifest(manifest)
    for cut in range(len(whole.rstrip())):
        with pytest.raises(DamagedManifest):
            decode_manifest(whole[:cut], Path("manifest.json"))


def test_the_format_is_as_documented(manifest: Manifest) -> None:
    facts = json.loads(encode_manifest(manifest))
    assert list(facts) == [
        "format",
        "job",
        "generation",
        "previous",
        "is_building",
        "run",
        "starts",
        "code",
        "settings",
        "shape",
    ]


# Who holds it


def test_a_second_holder_is_told_of_the_first(directory: JobDirectory) -> None:
    with directory.held(), pytest.raises(JobInUse) as told, directory.held("is being copied"):
        pass
    words = f"job {directory.path.name} runs already in process {os.getpid()}"
    assert str(told.value) == f"{words}: end that first, or wait for it"
    with directory.held("is being copied"), pytest.raises(JobInUse, match="is being copied in pro"):
        directory.held().__enter__()


def test_a_holder_that_is_killed_holds_no_more(directory: JobDirectory) -> None:
    """Nor do the processes that it has started, as a driver has started Spark."""
    code = (
        "import subprocess, sys; from pathlib import Path; "
        "from millstream.processing.jobs.checkpoints import JobDirectory\n"
        "with JobDirectory(Path(sys.argv[1]), job=sys.argv[2]).held():\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        "    print(child.pid, flush=True)\n"
        "    child.wait()\n"
    )
    command = [sys.executable, "-c", code, str(directory.path), directory.path.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(JobInUse, match=f"runs already in process {holder.pid}"):
                directory.held().__enter__()
            holder.kill()
            holder.wait()
            with directory.held():
                pass
        finally:
            os.kill(child, signal.SIGKILL)


# Generations


def test_a_rebuild_is_a_new_generation_beside_the_old(manifest: Manifest) -> None:
    new = next_generation(manifest, SHAPE, "c0de", {PARTITIONS: "4"})
    assert (new.generation, new.previous) == (2, 1)
    assert new.run != manifest.run
    assert new.run.startswith("2-")
    assert new.settings == {PARTITIONS: "4"}


def rebuilt(directory: JobDirectory, old: Manifest) -> Manifest:
    """A generation after `old` that has caught up."""
    new = next_generation(old, SHAPE, "c0de", {})
    directory.begin(new)
    (directory.checkpoint(new.generation) / "offsets").mkdir(parents=True)
    directory.write_definition(new.generation, b"of its own")
    return directory.settle(new)


def names_in(directory: JobDirectory) -> list[str]:
    return sorted(path.name for path in directory.path.iterdir())


def test_of_the_generations_before_the_last_one_is_kept(
    directory: JobDirectory, manifest: Manifest
) -> None:
    directory.begin(manifest)
    (directory.checkpoint(1) / "offsets").mkdir(parents=True)
    second = rebuilt(directory, manifest)
    assert directory.manifest() == replace(second, is_building=False, previous=1)
    assert directory.kept_manifest(1) == manifest
    third = rebuilt(directory, second)
    assert (third.generation, third.previous) == (3, 2)
    assert names_in(directory) == [
        "checkpoint-2",
        "checkpoint-3",
        "definition-2.pickle",
        "definition-3.pickle",
        "manifest-2.json",
        "manifest.json",
    ]


def test_a_rebuild_that_is_begun_again_leaves_the_generation_that_readers_see(
    directory: JobDirectory, manifest: Manifest
) -> None:
    directory.begin(manifest)
    broken_off = next_generation(manifest, SHAPE, "c0de", {})
    directory.begin(broken_off)
    again = next_generation(broken_off, SHAPE, "c0de", {})
    assert (again.generation, again.previous) == (3, 1)
    directory.begin(again)
    assert directory.kept_manifest(1) == manifest


def test_a_job_goes_back_to_the_generation_before_and_forth_again(
    directory: JobDirectory, manifest: Manifest
) -> None:
    directory.begin(manifest)
    directory.checkpoint(1).mkdir()
    second = replace(rebuilt(directory, manifest), starts=7)
    directory.write(second)
    back = directory.roll_back()
    assert back == replace(manifest, previous=2, starts=7)
    assert directory.manifest() == back
    assert directory.roll_back() == replace(second, previous=1)


def test_a_rebuild_after_a_rollback_has_a_number_of_its_own(
    directory: JobDirectory, manifest: Manifest
) -> None:
    directory.begin(manifest)
    directory.checkpoint(1).mkdir()
    rebuilt(directory, manifest)
    third = next_generation(directory.roll_back(), SHAPE, "c0de", {})
    assert (third.generation, third.previous) == (3, 1)


def test_there_is_nothing_to_go_back_to_without_a_rebuild(
    directory: JobDirectory, manifest: Manifest
) -> None:
    directory.begin(manifest)
    with pytest.raises(NothingBefore, match="has no generation before this one"):
        directory.roll_back()


def test_a_job_that_is_forgotten_has_nothing_but_its_lock(
    directory: JobDirectory, manifest: Manifest
) -> None:
    with directory.held():
        directory.begin(manifest)
        rebuilt(directory, manifest)
        directory.forget()
        assert names_in(directory) == ["running.lock"]
    assert directory.manifest() is None


def test_a_manifest_of_a_rebuild_under_way_before_there_were_rollbacks_is_read(
    directory: JobDirectory, manifest: Manifest
) -> None:
    building = next_generation(manifest, SHAPE, "c0de", {})
    facts = json.loads(encode_manifest(building))
    del facts["is_building"]
    content = json.dumps(facts).encode()
    assert decode_manifest(content, directory.path).is_building


def test_a_setting_that_the_checkpoint_overrules_is_told(manifest: Manifest) -> None:
    assert frozen_differences(manifest, {PARTITIONS: "2"}) == []
    assert frozen_differences(manifest, {PARTITIONS: "8"}) == [
        "spark.sql.shuffle.partitions is 8, and the checkpoint keeps 2"
    ]
