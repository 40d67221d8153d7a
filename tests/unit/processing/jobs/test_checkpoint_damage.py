"""What a power cut or a bad disk leaves of a checkpoint."""

import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.processing.jobs.checkpoint_damage import CheckpointDamaged, make_whole

LAST = 3


def put(path: Path, content: bytes) -> None:
    """As Hadoop does: with a checksum beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    sums = [zlib.crc32(content[at : at + 512]) for at in range(0, len(content), 512)]
    header = b"crc\0" + struct.pack(">I", 512)
    checksum = header + struct.pack(f">{len(sums)}I", *sums)
    path.with_name(f".{path.name}.crc").write_bytes(checksum)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 to 3 are planned, 3 is not done; state of two partitions, with a snapshot."""
    root = tmp_path / "checkpoint-1"
    put(root / "metadata", b'{"id":"q"}')
    for number in range(LAST + 1):
        put(root / "offsets" / str(number), b"v2\n{}\n" + b"x" * 600)
    for number in range(LAST):
        put(root / "commits" / str(number), b"v1\n{}")
    for part in "01":
        for version in range(1, LAST + 1):
            put(root / "state/0" / part / f"{version}.changelog", b"LZ4Block")
        put(root / "state/0" / part / "2.zip", b"PK")
    return root


def names(checkpoint: Path, directory: str) -> list[str]:
    return sorted(path.name for path in (checkpoint / directory).iterdir())


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def emptied_with_its_checksum(path: Path) -> None:
    emptied(path)
    path.with_name(f".{path.name}.crc").write_bytes(b"")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


TORN = (emptied, emptied_with_its_checksum, cut_short, flipped, zeroed)


def test_a_whole_checkpoint_is_left_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    before = shutil.copytree(checkpoint, tmp_path / "before")
    make_whole("counts", checkpoint)
    make_whole("counts", tmp_path / "never_begun")
    assert {path.name: path.stat().st_size for path in before.rglob("*")} == {
        path.name: path.stat().st_size for path in checkpoint.rglob("*")
    }


@pytest.mark.parametrize("tear", TORN)
def test_a_torn_plan_of_the_last_batch_is_removed(
    checkpoint: Path, tear: Callable[[Path], None]
) -> None:
    tear(checkpoint / "offsets" / str(LAST))
    make_whole("counts", checkpoint)
    assert names(checkpoint, "offsets") == [".0.crc", ".1.crc", ".2.crc", "0", "1", "2"]


@pytest.mark.parametrize("tear", TORN)
def test_a_torn_note_that_a_batch_is_done_is_removed(
    checkpoint: Path, tear: Callable[[Path], None]
) -> None:
    tear(checkpoint / "commits" / str(LAST - 1))
    make_whole("counts", checkpoint)
    assert names(checkpoint, "commits") == [".0.crc", ".1.crc", "0", "1"]
    assert str(LAST) in names(checkpoint, "offsets")


def test_a_torn_name_and_state_of_a_checkpoint_without_batches_are_removed(tmp_path: Path) -> None:
    put(tmp_path / "metadata", b"")
    put(tmp_path / "state/0/_metadata/metadata", b"v1")
    make_whole("counts", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tear", TORN)
@pytest.mark.parametrize("name", ["metadata", f"offsets/{LAST - 1}", "state/0/0/3.changelog"])
def test_other_damage_is_an_error_with_the_file_and_the_next_command(
    checkpoint: Path, name: str, tear: Callable[[Path], None]
) -> None:
    tear(checkpoint / name)
    with pytest.raises(CheckpointDamaged) as caught:
        make_whole("counts", checkpoint)
    expected = f"Job counts cannot start from its checkpoint: {checkpoint / name} "
    assert str(caught.value).startswith(expected)
    assert "millstream run APP_FILE --rebuild counts" in str(caught.value)


@pytest.mark.parametrize("tear", TORN)
def test_a_torn_snapshot_is_removed_if_all_that_it_sums_up_is_there(
    checkpoint: Path, tear: Callable[[Path], None]
) -> None:
    """Spark writes it later, and nothing waits until it is on disk."""
    tear(checkpoint / "state/0/1/2.zip")
    make_whole("counts", checkpoint)
    assert [name for name in names(checkpoint, "state/0/1") if "zip" in name] == []
    assert "2.zip" in names(checkpoint, "state/0/0")


@pytest.mark.parametrize("tear", TORN)
@pytest.mark.parametrize("gone", ["1.changelog", "2.changelog", "3.changelog"])
def test_a_torn_snapshot_that_is_needed_is_an_error(
    checkpoint: Path, gone: str, tear: Callable[[Path], None]
) -> None:
    (checkpoint / "state/0/1" / gone).unlink()
    tear(checkpoint / "state/0/1/2.zip")
    with pytest.raises(CheckpointDamaged, match=r"state/0/1/2\.zip "):
        make_whole("counts", checkpoint)


@pytest.mark.parametrize("tear", TORN)
def test_a_damaged_plan_of_a_batch_that_is_done_is_an_error(
    checkpoint: Path, tear: Callable[[Path], None]
) -> None:
    put(checkpoint / "commits" / str(LAST), b"v1\n{}")
    tear(checkpoint / "offsets" / str(LAST))
    with pytest.raises(CheckpointDamaged, match=f"offsets/{LAST} "):
        make_whole("counts", checkpoint)


def test_state_before_the_last_snapshot_is_not_looked_at(checkpoint: Path) -> None:
    emptied(checkpoint / "state/0/0/1.changelog")
    make_whole("counts", checkpoint)


@pytest.mark.parametrize("name", ["metadata", f"offsets/{LAST - 1}"])
def test_a_file_that_is_missing_is_an_error(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    with pytest.raises(CheckpointDamaged, match=f"{name} is missing"):
        make_whole("counts", checkpoint)


@pytest.mark.parametrize("tear", TORN)
def test_state_that_the_last_batch_writes_again_is_not_looked_at(
    checkpoint: Path, tear: Callable[[Path], None]
) -> None:
    put(checkpoint / "state/0/0" / f"{LAST + 1}.changelog", b"LZ4Block")
    tear(checkpoint / "state/0/0" / f"{LAST + 1}.changelog")
    make_whole("counts", checkpoint)
    put(checkpoint / "commits" / str(LAST), b"v1\n{}")
    with pytest.raises(CheckpointDamaged, match=f"{LAST + 1}.changelog"):
        make_whole("counts", checkpoint)
