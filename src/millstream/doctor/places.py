"""Asks ports, the data directory and the broker; `verdicts.py` judges."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from millstream.base.errors import MillstreamError
from millstream.broker_start import start_command
from millstream.client_protection import protection_config
from millstream.doctor.finding import Finding
from millstream.doctor.verdicts import (
    DataDirectory,
    broker_disk_findings,
    broker_finding,
    broker_partitions_finding,
    data_finding,
    port_finding,
)
from millstream.log.log_directory import owner_of
from millstream.queues.access import access_from
from millstream.queues.broker_health import broker_health
from millstream.queues.login import LoginFailed
from millstream.settings import ClientSettings, is_given, load

PORTS = {9092: "the broker", 8080: "the console"}
CONNECT_SECONDS_MAX = 1.0
BROKER_SECONDS_MAX = 5.0
LISTENING = "0A"  # as Linux writes it in /proc/net/tcp


def place_findings(data: Path | None) -> Iterator[Finding]:
    for port, use in PORTS.items():
        is_free = not _answers(port)
        holder = "" if is_free else holder_of(port)
        yield port_finding(port, use, is_free=is_free, holder=holder)
    if data is not None:
        yield data_finding(looked_at(data))
    if is_given(ClientSettings, "brokers", options={}):
        broker = _broker()
        yield broker
        if broker.verdict == "ok":
            yield from _health()


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(CONNECT_SECONDS_MAX)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def holder_of(port: int, proc: Path = Path("/proc")) -> str:
    """The process that listens there, where the system lets us see it; else nothing."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    for process in proc.glob("[0-9]*"):
        if sockets.intersection(_open_files(process)):
            with contextlib.suppress(OSError):  # gone meanwhile
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
    return ""


def _open_files(process: Path) -> Iterator[str]:
    """Nothing of a process of another user, and of a file that was closed meanwhile."""
    with contextlib.suppress(OSError):
        for one in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(one)


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text(encoding="utf-8").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def looked_at(data: Path) -> DataDirectory:
    if not data.exists():
        return DataDirectory(str(data), exists=False)
    if not data.is_dir():
        return DataDirectory(str(data), is_directory=False)
    is_ours = os.geteuid() in (0, data.stat().st_uid)
    is_writable = os.access(data, os.R_OK | os.W_OK | os.X_OK)
    owner = owner_of(data) if is_ours and is_writable else ""
    return DataDirectory(str(data), is_ours=is_ours, is_writable=is_writable, owner=owner)


def _health() -> Iterator[Finding]:
    settings = load(ClientSettings)
    address = ",".join(map(str, settings.brokers))
    config = {"bootstrap.servers": address, **protection_config(settings)}
    try:
        found = broker_health(access_from(config))
    except MillstreamError as error:
        yield Finding("broker disk", "warn", f"not known: {error}", "ask its operator")
        return
    yield from broker_disk_findings(found.disks)
    yield broker_partitions_finding(found)


def _refusal(settings: ClientSettings, address: str) -> str:
    """What a broker that answers says of a login; librdkafka tells of its silence alone."""
    try:
        broker_health(access_from({"bootstrap.servers": address, **protection_config(settings)}))
    except LoginFailed as error:
        return f"{error}; say who you are: MILLSTREAM_USER and MILLSTREAM_PASSWORD_FILE"
    except MillstreamError:
        pass
    return ""


def _broker() -> Finding:
    from millstream.processing.kafka_clients import BrokerNotReached, admin_client, translated

    settings = load(ClientSettings)
    address = ",".join(map(str, settings.brokers))
    client = {"log_level": 0, **protection_config(settings)}
    try:
        found = translated(
            lambda: admin_client(address, client).list_topics(timeout=BROKER_SECONDS_MAX),
            doing="ask for its topics",
            brokers=address,
        )
    except MillstreamError as error:
        is_silent = isinstance(error, BrokerNotReached)  # whose own advice is the finding's
        told = "no broker answers there" if is_silent else str(error)
        problem = _refusal(settings, address) or told
        return broker_finding(address, "", problem, start=start_command())
    told = f"{len(found.brokers)} in the cluster, {len(found.topics)} topics"
    return broker_finding(address, told, "")
