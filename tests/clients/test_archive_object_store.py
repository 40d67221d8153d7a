"""An archive in an object store: the real protocol of S3, on loopback."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from millstream import archive
from tests.clients.steps import create_topic, produce
from tests.clients.test_archive_commands import contents, numbered
from tests.clients.test_cli_commands import Cli
from tests.support.s3_server import CREDENTIALS, s3_bucket

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket("history") as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def test_a_topic_goes_to_s3_and_comes_back(
    bucket: str, bootstrap: str, admin: AdminClient, topic: str
) -> None:
    cli, place = Cli(bootstrap), bucket % topic
    create_topic(admin, topic)
    for start in (0, 600):
        produce(bootstrap, topic, numbered(600, start=start))
        cli.run("topics", "archive", topic, "--to", place, "--file-records", "250", "--all")
    shown = cli.run("topics", "archived", "--at", place, "--verify")
    assert "1,200" in shown
    cli.run("topics", "restore", "--from", place, "--to-topic", f"{topic}-restored")
    assert contents(bootstrap, f"{topic}-restored", 1_200) == contents(bootstrap, topic, 1_200)
    rows = sum(batch.num_rows for batch in archive.read(place, topic, start=1_000))
    assert rows == 200
