"""Runs every question against our broker and Apache Kafka in alternation, and reports.

    python -m bench.against_kafka [--quick] [--only NAME] [--rounds N] [--java] [--out FILE]

NAME is a part of a question's name: throughput, small_requests, latency, transactions,
share_groups, footprint, java_client.
A full run rewrites docs/bench.md; a quick or partial one writes only where `--out` says.
"""

import argparse
import itertools
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from bench import (
    footprint,
    java_client,
    produce_latency,
    share_groups,
    small_requests,
    throughput,
    transactions,
)
from bench.brokers import SIDES, Contender, Contenders, Mode, contenders
from bench.client import CHUNK, Work, run_client
from bench.process_usage import OthersShare
from bench.report import print_table, write_markdown
from bench.results import Results

DOCUMENT = Path(__file__).parents[1] / "docs" / "bench.md"
ROUNDS = 5
WARM_UP_RECORDS = 500_000
WARM_UP_RECORDS_QUICK = 50_000


class Case(Protocol):
    """A question in one shape and mode."""

    @property
    def question(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> Mode: ...
    def measure(self, contender: Contender, topic: str, results: Results) -> None: ...


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the brokers are stopped too
    options = parse_options()
    cases = selected_cases(options)
    is_ours_kafka = options.ours == "kafka"
    warm_up_records = WARM_UP_RECORDS_QUICK if options.quick else WARM_UP_RECORDS
    results = Results()
    others, started_s = OthersShare(), time.monotonic()
    try:
        with contenders(is_ours_kafka=is_ours_kafka) as running:
            warm_up(running, warm_up_records)
            run_cases(cases, running, rounds=options.rounds, results=results)
            footprint.measure_peak(running, results)
    finally:
        print_table(results)  # what there is, also when interrupted
    elapsed_s = time.monotonic() - started_s
    others_percent = others.percent()
    print(f"{elapsed_s:.0f} s in all; others used {others_percent:.0f} % of the CPU meanwhile")
    is_full = not (options.quick or options.only or is_ours_kafka)
    out = options.out or (DOCUMENT if is_full else None)
    if out is not None:
        write_markdown(
            out,
            results,
            rounds=options.rounds,
            warm_up_records=warm_up_records,
            elapsed_s=elapsed_s,
            others_percent=others_percent,
        )
        print(f"written to {out}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.against_kafka")
    parser.add_argument("--quick", action="store_true", help="small counts: does it work?")
    parser.add_argument("--only", metavar="NAME", help="a part of the names of the cases to run")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--java", action="store_true", help="also with Kafka's Java client")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the report")
    parser.add_argument(
        "--ours",
        choices=["millstream", "kafka"],
        default="millstream",
        help="'kafka' lets a second Kafka play our part, to try the bench itself",
    )
    return parser.parse_args()


def selected_cases(options: argparse.Namespace) -> list[Case]:
    cases: list[Case] = [
        *throughput.cases(is_quick=options.quick),
        *small_requests.cases(is_quick=options.quick),
        *produce_latency.cases(is_quick=options.quick),
        *transactions.cases(is_quick=options.quick, has_java=options.java),
        *share_groups.cases(is_quick=options.quick, has_java=options.java),
        *footprint.cases(is_ours_kafka=options.ours == "kafka"),
    ]
    if options.java:
        cases += java_client.cases(is_quick=options.quick)
    chosen = [case for case in cases if not options.only or options.only in case.name]
    if not chosen:
        names = ", ".join(case.name for case in cases)
        raise SystemExit(f"no case has {options.only!r} in its name; there are: {names}")
    return chosen


def warm_up(running: Contenders, records: int) -> None:
    """Let the JVM compile its hot paths, and let ours do the same work for fairness."""
    for (side, mode), contender in running.items():
        print(f"warming up {side} {mode} ...", flush=True)
        for size, codec in ((100, "none"), (1000, "lz4")):
            topic = f"warm-up-{side}-{mode}-{size}"
            contender.create_topic(topic, partitions=1)
            # Small records in number, large ones in bytes: both paths get their share.
            count = records if size == 100 else max(CHUNK, records // 5 // CHUNK * CHUNK)
            work = Work(
                bootstrap=contender.bootstrap,
                topic=topic,
                count=count,
                record_bytes=size,
                codec=codec,
            )
            run_client("produce_batches", work)
            run_client("consume_batches", work)
            contender.delete_topic(topic)
        warm_up_requests(contender)


def warm_up_requests(contender: Contender) -> None:
    topic = f"warm-up-{contender.side}-{contender.mode}-requests"
    contender.create_topic(topic, partitions=1)
    work = Work(
        bootstrap=contender.bootstrap,
        topic=topic,
        count=small_requests.RECORDS_PER_CONNECTION,
        connections=small_requests.CONNECTIONS,
        seconds=2.0,
    )
    run_client("produce_one_per_request", work)
    contender.delete_topic(topic)


def run_cases(cases: Sequence[Case], running: Contenders, *, rounds: int, results: Results) -> None:
    """Case by case, round by round, the sides in turn."""
    total = len(cases) * rounds * len(SIDES)
    turns = itertools.product(cases, range(rounds), SIDES)
    for number, (case, round_number, side) in enumerate(turns, start=1):
        started_s = time.monotonic()
        topic = f"bench-{number}"
        case.measure(running[side, case.mode], topic, results)
        took_s = time.monotonic() - started_s
        print(
            f"[{number}/{total}] {case.name}, round {round_number + 1}, {side}: {took_s:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
