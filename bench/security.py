"""Question: what does TLS cost, and how many logins can a broker take?

Reproduce:  python -m bench.security [--kafka]

The same librdkafka client produces 1 KB records with acks=all and reads them back, with and without
TLS in turn; the best of three counts, CPU is the broker's own. Apache Kafka has both listeners in
one JVM. Then clients connect, log in and ask one question, one after the other. Loopback, a minute.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.protected_broker import ProtectedBroker, make_certificates

from bench.process_usage import usage_of

# By protection: the client's configuration, and the broker's process.
Servers = dict[str, tuple[dict[str, Any], int]]

RECORD_BYTES = 1_000
ROUNDS = 3
LOGINS = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """Megabytes or logins: how many in a second, and what each costs the broker."""

    per_s: float
    cpu_ms_each: float


@contextmanager
def broker(protocol: str) -> Iterator[ProtectedBroker]:
    with tempfile.TemporaryDirectory() as folder:
        sasl = "SCRAM-SHA-256,PLAIN" if protocol.startswith("SASL") else ""
        running = ProtectedBroker(
            Path(folder), "--durability", "relaxed", sasl=sasl, has_tls=protocol.endswith("SSL")
        )
        with running:
            yield running


def measure(pid: int, count: int, work: Callable[[], None]) -> Measured:
    cpu_s, started = usage_of(pid).cpu_s, time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    megabytes = count * RECORD_BYTES / 1e6
    cpu_ms = (usage_of(pid).cpu_s - cpu_s) * 1000
    return Measured(megabytes / seconds, cpu_ms / megabytes)


def produce(config: dict[str, Any], topic: str, count: int) -> None:
    producer = Producer(config | {"linger.ms": 5, "queue.buffering.max.messages": count + 1})
    value = b"v" * RECORD_BYTES
    for _ in range(count):
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(config: dict[str, Any], topic: str, count: int) -> None:
    consumer = Consumer(config | {"group.id": "load", "check.crcs": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    while read < count:
        read += len(consumer.consume(10_000, timeout=10))
    consumer.close()


@contextmanager
def ours() -> Iterator[Servers]:
    """Two brokers, one with TLS and a login."""
    with broker("PLAINTEXT") as plain, broker("SASL_SSL") as protected:
        yield {
            "plaintext": (plain.client(), plain.pid),
            "TLS": (protected.client(), protected.pid),
        }


@contextmanager
def kafka() -> Iterator[Servers]:
    with tempfile.TemporaryDirectory() as name:
        folder = make_certificates(Path(name) / "certificates")
        keystore = folder / "keystore.pem"
        keystore.write_bytes(
            (folder / "server.key").read_bytes() + (folder / "server.pem").read_bytes()
        )
        plain, tls, controller = (f"127.0.0.1:{port}" for port in free_ports(3))
        properties = {
            "listeners": f"PLAINTEXT://{plain},SSL://{tls},CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@{controller}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        }
        ca = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.pem")}
        with ApacheKafka(extra_properties=properties, bootstrap=plain) as running:
            yield {
                "plaintext": ({"bootstrap.servers": plain}, running.pid),
                "TLS": ({"bootstrap.servers": tls} | ca, running.pid),
            }


def compare(servers: Servers, count: int) -> dict[tuple[str, str], Measured]:
    """The best of some rounds, by verb and protection."""
    best: dict[tuple[str, str], Measured] = {}
    for number in range(ROUNDS):
        for protection, (config, pid) in servers.items():
            topic = f"load-{protection}-{number}"
            produce(config, topic, 1_000)  # connections, the topic
            for verb, work in (("produce", produce), ("consume", consume)):
                measured = measure(pid, count, partial(work, config, topic, count))
                known = best.get((verb, protection), measured)
                best[verb, protection] = max(known, measured, key=lambda one: one.per_s)
    return best


def print_comparison(name: str, best: dict[tuple[str, str], Measured]) -> None:
    for verb in ("produce", "consume"):
        plain, tls = best[verb, "plaintext"], best[verb, "TLS"]
        print(
            f"| {name}, {verb} | {plain.per_s:.0f} MB/s | {tls.per_s:.0f} MB/s | "
            f"{tls.per_s / plain.per_s:.2f} | {plain.cpu_ms_each:.1f} and {tls.cpu_ms_each:.1f} |"
        )


def logins_per_s(mechanism: str) -> Measured:
    """Whole ones: connect, TLS handshake, login, one answer. CPU is for each."""
    with broker("SASL_SSL") as running:
        config = running.client(sasl_mechanism=mechanism)
        cpu_s, started = usage_of(running.pid).cpu_s, time.perf_counter()
        for _ in range(LOGINS):
            Producer(config).list_topics(timeout=30)
        seconds = time.perf_counter() - started
        return Measured(LOGINS / seconds, (usage_of(running.pid).cpu_s - cpu_s) * 1000 / LOGINS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=60_000, help="records of 1 KB")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as well")
    options = parser.parse_args()
    print("| | plaintext | TLS | ratio | CPU, ms per MB |\n|---|---|---|---|---|")
    with ours() as servers:
        print_comparison("Millstream", compare(servers, options.count))
    if options.kafka:
        with kafka() as servers:
            print_comparison("Apache Kafka", compare(servers, options.count))
    print("\n| login by | clients per second | CPU of the broker, ms each |\n|---|---|---|")
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        measured = logins_per_s(mechanism)
        print(f"| {mechanism} | {measured.per_s:.0f} | {measured.cpu_ms_each:.1f} |")


if __name__ == "__main__":
    main()
