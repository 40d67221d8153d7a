"""The programs of examples/ that need no Spark print what their docstrings say."""

from pathlib import Path

import pytest

from tests.support.example_runs import printed, promised
from tests.support.postgres_server import LOGICAL, postgres_server


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_BROKERS", raising=False)


@pytest.mark.parametrize(
    "example",
    [
        "capture_sqlite",
        "produce_and_consume",
        "publish_over_http",
        "replay",
        "transactions",
        "work_queue",
    ],
)
def test_an_example_prints_what_it_says(example: str) -> None:
    assert printed(example) == promised(example)


def test_the_capture_of_postgresql_prints_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server(LOGICAL) as server:
        monkeypatch.setenv("SHOP_DATABASE", server.url)
        assert printed("capture_postgres") == promised("capture_postgres")
