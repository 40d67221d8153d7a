import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.base.disk import Unwritable
from millstream.eventsourcing.key_store import BadKeyFile, KeyDirectory, KeyringExposed

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture
def store(tmp_path: Path) -> KeyDirectory:
    return KeyDirectory(tmp_path / "shop.keyring")


def test_a_key_is_kept_for_its_owner_only(store: KeyDirectory) -> None:
    assert store.load("a") is None
    assert not store.path.exists()
    assert store.keep("a", KEY) == KEY
    assert KeyDirectory(store.path).load("a") == KEY
    assert store.path.stat().st_mode & 0o777 == 0o700
    assert (store.path / "a.key").stat().st_mode & 0o777 == 0o600


def test_the_first_key_of_a_name_stays(store: KeyDirectory) -> None:
    store.keep("a", KEY)
    assert store.keep("a", OTHER) == KEY
    assert [file.name for file in store.path.iterdir()] == ["a.key"]


def test_a_destroyed_key_is_overwritten_before_it_is_unlinked(store: KeyDirectory) -> None:
    store.keep("a", KEY)
    os.link(store.path / "a.key", store.path / "a.0.tmp")  # left by a crash while it was kept
    with (store.path / "a.key").open("rb") as still_open:
        store.destroy("a")
        assert still_open.read() != KEY
    assert [*store.path.iterdir()] == []
    store.destroy("a")
    assert store.load("a") is None


def test_a_crash_between_overwriting_and_unlinking_leaves_no_key(
    store: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.keep("a", KEY)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_args, **_more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.destroy("a")
    assert (store.path / "a.key").read_bytes() != KEY
    store.destroy("a")
    assert [*store.path.iterdir()] == []


def test_a_key_is_synced_before_it_has_its_name_and_its_name_before_it_is_used(
    store: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def noted(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def noting(*args: Any) -> None:
            call(*args)
            done.append(name)

        return noting

    monkeypatch.setattr(os, "fsync", noted("sync", os.fsync))
    monkeypatch.setattr(os, "link", noted("link", os.link))
    store.keep("a", KEY)
    assert done[-3:] == ["sync", "link", "sync"]


def test_a_keyring_that_others_can_read_is_refused(store: KeyDirectory) -> None:
    store.keep("a", KEY)
    (store.path / "a.key").chmod(0o640)
    with pytest.raises(KeyringExposed, match=r"a\.key can be read by others \(mode 640\).*600"):
        store.load("a")
    store.path.chmod(0o755)
    with pytest.raises(KeyringExposed, match="chmod 700"):
        store.load("a")
    with pytest.raises(KeyringExposed, match="chmod 700"):
        store.keep("b", KEY)


def test_a_file_that_is_no_key_is_told(store: KeyDirectory) -> None:
    store.keep("a", KEY)
    (store.path / "a.key").write_bytes(KEY[:31])
    with pytest.raises(BadKeyFile, match="has 31 bytes"):
        store.load("a")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable):
        KeyDirectory(tmp_path / "file" / "keyring").keep("a", KEY)
