import pytest

from millstream.archive.stores import BadPlace, DiskStore, open_store, without_secrets


def test_a_path_and_a_file_address_are_a_directory() -> None:
    for place in ("history", "~/history", "/tmp/history", "file:///tmp/history"):
        assert isinstance(open_store(place), DiskStore)
        assert open_store(place).place == place


def test_what_is_shown_of_an_address_has_no_secrets() -> None:
    shown = without_secrets("s3://key:secret@bucket/folder?endpoint_override=127.0.0.1:9")
    assert shown == "s3://bucket/folder"


def test_a_bad_address_is_refused_without_its_secrets() -> None:
    with pytest.raises(BadPlace, match="no place for an archive") as refused:
        open_store("s4://key:secret@bucket/folder")
    assert "secret" not in str(refused.value)
    assert "s3://bucket/folder" in str(refused.value)
