"""A client that asks for much and takes nothing of it loses its connection; a slow one does not."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from millstream.schemas.declaration import schema_of
from millstream.web import watched_protocol
from millstream.web.server import Listening, server_beside
from millstream.web.service import make_service
from tests.support.http_attackers import get, is_ended
from tests.support.waiting import eventually
from tests.support.web_application import KeptView, MemoryApplication

pytestmark = pytest.mark.full

# More than the buffers of both ends hold.
ROWS, LETTERS = 10_000, 2_000
STALL_SECONDS = 0.5


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(watched_protocol, "WRITE_STALL_SECONDS", STALL_SECONDS)
    view = KeptView(tmp_path, "texts", schema_of("id BIGINT, text STRING"), ("id",))
    view.write([{"id": number, "text": "x" * LETTERS} for number in range(ROWS)])
    application = MemoryApplication(view)
    listening = Listening(host="127.0.0.1", port=0)
    with server_beside(lambda: make_service(application), listening) as url:
        found = urlsplit(url)
        assert found.hostname is not None
        assert found.port is not None
        yield found.hostname, found.port
    application.close()


def asked(address: tuple[str, int]) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.settimeout(30)
    one.connect(address)
    one.sendall(get(f"/v1/views/texts/rows?limit={ROWS}").encode())
    return one


def test_an_answer_that_nobody_takes_ends_with_its_connection(address: tuple[str, int]) -> None:
    with asked(address) as one:
        head = one.recv(100)
        assert b" 200 OK" in head
        time.sleep(10 * STALL_SECONDS)  # takes nothing: what is tested is that this does not last
        eventually(lambda: is_ended(one), what="the connection ends", within_s=30)


def test_an_answer_that_is_taken_slowly_is_whole(address: tuple[str, int]) -> None:
    with asked(address) as one:
        taken, began = 0, time.monotonic()
        while part := one.recv(1 << 20):
            taken += len(part)
            if time.monotonic() - began < 6 * STALL_SECONDS:
                time.sleep(STALL_SECONDS / 50)
    assert taken > ROWS * LETTERS
