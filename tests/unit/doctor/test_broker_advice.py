"""What doctor says where no broker answers: how to start one with the data that is there."""

from pathlib import Path

import pytest

from millstream.doctor.places import _broker
from millstream.log.log_directory import META_FILE


def test_the_advice_names_the_data_directory_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_BROKERS", "127.0.0.1:1")
    found = _broker()
    assert found.verdict == "fail"
    assert found.told == "127.0.0.1:1: no broker answers there"
    assert found.mend.startswith("start it (`millstream broker`), or set")
    (tmp_path / "my shop.millstream").mkdir()
    (tmp_path / "my shop.millstream" / META_FILE).write_text("{}")
    assert "`millstream broker --data 'my shop.millstream'`" in _broker().mend
