"""Ports to listen on, which no client of this machine is given as its own."""

import socket
from itertools import pairwise
from pathlib import Path

import pytest

from millstream.base import listening_ports as ports
from millstream.base.listening_ports import free_port, listening_ports


@pytest.fixture
def clients_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "range"
    monkeypatch.setattr(ports, "CLIENTS_RANGE", path)
    return path


def test_they_are_below_those_of_clients_and_the_system_has_the_last_word(
    clients_range: Path,
) -> None:
    clients_range.write_text("32768\t60999\n")
    *tried, last = listening_ports()
    assert last == 0
    assert len(set(tried)) == ports.TRIES_MAX
    assert all(ports.LISTENING_FROM <= port < 32_768 for port in tried)


@pytest.mark.parametrize("text", ["1024 65535", "15010 60999"])
def test_where_clients_have_nearly_all_the_system_chooses(clients_range: Path, text: str) -> None:
    clients_range.write_text(text)
    assert list(listening_ports()) == [0]


@pytest.mark.parametrize("text", [None, "", "many"])
def test_a_system_that_does_not_say_has_the_standard_s_range(
    clients_range: Path, text: str | None
) -> None:
    if text is not None:
        clients_range.write_text(text)
    *tried, _ = listening_ports()
    assert tried
    assert max(tried) < ports.CLIENTS_FROM_DEFAULT


def test_one_that_is_taken_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        taken = held.getsockname()[1]
        monkeypatch.setattr(ports, "listening_ports", lambda: iter([taken, 0]))
        assert free_port() not in (0, taken)


def test_two_callers_hardly_meet() -> None:
    assert any(one != other for one, other in pairwise(free_port() for _ in range(10)))
