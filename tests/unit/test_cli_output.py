import contextlib
import io
import os
import re
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.base.disk import Unwritable
from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.cli import EXIT_CODE_MEANINGS, EXIT_CODES, app, exit_code_of
from millstream.cli_docs import to_markdown
from millstream.commands.connecting import BrokerUnreachable, Partition, TopicNotFound
from millstream.commands.consume import Stop
from millstream.commands.options import BadOption, parse_topic_configs
from millstream.commands.output import (
    NobodyToAsk,
    NotConfirmed,
    confirm,
    counted,
    table,
    terminate_as_interrupt,
    uninterrupted,
)
from millstream.commands.produce import reason_of
from millstream.commands.run import ended_line
from millstream.commands.topics import in_words
from millstream.processing.jobs.progress import JobProgress

FIRST, SECOND = Partition("clicks", 0), Partition("clicks", 1)
BOTH = frozenset([FIRST, SECOND])


def test_a_table_aligns_numbers_right_and_words_left() -> None:
    assert table(["TOPIC", "RECORDS"], [["clicks", 12345], ["a", None]]).split("\n") == [
        "TOPIC   RECORDS",
        "clicks   12,345",
        "a             -",
    ]


def test_things_are_counted_in_words() -> None:
    assert [counted(n, "record") for n in (0, 1, 1000)] == [
        "0 records",
        "1 record",
        "1,000 records",
    ]


def test_topic_configs_take_human_units() -> None:
    given = ["retention.ms=7d", "segment.bytes=64MiB", "retention.bytes=unlimited", "a.ms=-1"]
    assert parse_topic_configs([*given, "cleanup.policy=compact"]) == {
        "retention.ms": "604800000",
        "segment.bytes": "67108864",
        "retention.bytes": "-1",
        "a.ms": "-1",
        "cleanup.policy": "compact",
    }


@pytest.mark.parametrize("pair", ["retention.ms", "=1", "retention.ms=soon", "segment.bytes=big"])
def test_a_topic_config_that_cannot_be_read_is_refused(pair: str) -> None:
    with pytest.raises(BadOption, match="--config"):
        parse_topic_configs([pair])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "-1", "forever"),
        ("retention.bytes", "-1", "unlimited"),
        ("segment.bytes", "67108864", "64MiB"),
        ("local.retention.ms", "-2", "-2"),
        ("flush.ms", "9223372036854775807", "9223372036854775807"),
        ("cleanup.policy", "delete", "delete"),
    ],
)
def test_a_config_is_said_in_words(name: str, value: str, words: str) -> None:
    assert in_words(name, value) == words


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound(topic="a"), 1),
        (BadOption(option="--a", value="b", allowed="c"), 2),
        (BrokerUnreachable(brokers="a:1", reason="refused"), 69),
        (Retryable("later"), 75),
        (Corrupt("bytes"), 74),
        (FileNotFoundError("a"), 74),
        (Unwritable(path=Path("a"), reason="b"), 74),
        (KeyboardInterrupt(), 130),
        (Rejected("no"), 1),
    ],
)
def test_an_error_has_the_exit_code_of_its_nearest_kind(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


def test_every_exit_code_has_a_meaning() -> None:
    assert set(EXIT_CODES.values()) | {0} == set(EXIT_CODE_MEANINGS)


def test_a_missing_topic_suggests_the_nearest() -> None:
    error = TopicNotFound(topic="clik", known=["clicks", "orders"])
    assert str(error) == "Topic clik does not exist. Did you mean clicks?"


def test_consuming_stops_after_that_many_records() -> None:
    stop = Stop(max_records=2)
    assert [stop.wants(FIRST, offset) for offset in range(3)] == [True, True, False]
    assert stop.is_due(now_ms=0, ours=BOTH)


def test_consuming_stops_when_every_partition_is_at_its_end() -> None:
    stop = Stop(ends={FIRST: 2, SECOND: 5})
    assert [stop.wants(FIRST, offset) for offset in (0, 1, 2)] == [True, True, False]
    assert not stop.is_due(now_ms=0, ours=BOTH)
    stop.reached(SECOND, 5)
    assert stop.is_due(now_ms=0, ours=BOTH)


def test_an_end_that_is_a_transaction_marker_is_reached_without_its_record() -> None:
    stop = Stop(ends={FIRST: 3})
    assert stop.wants(FIRST, 1)
    assert not stop.is_due(now_ms=0, ours=BOTH)
    stop.reached(FIRST, 3)
    assert stop.is_due(now_ms=0, ours=BOTH)


def test_a_group_member_waits_only_for_its_own_partitions() -> None:
    stop = Stop(ends={FIRST: 1, SECOND: 1})
    assert not stop.is_due(now_ms=0, ours=frozenset())
    assert stop.wants(FIRST, 0)
    assert stop.is_due(now_ms=0, ours=frozenset([FIRST]))


def test_without_bounds_consuming_follows() -> None:
    stop = Stop()
    assert stop.wants(FIRST, 0)
    assert not stop.is_due(now_ms=2**60, ours=BOTH)


def test_a_deadline_ends_it() -> None:
    stop = Stop(deadline_ms=100)
    assert not stop.is_due(now_ms=99, ours=BOTH)
    assert stop.is_due(now_ms=100, ours=BOTH)


def test_a_failed_delivery_is_told_in_plain_words_with_its_code() -> None:
    assert reason_of("_UNKNOWN_PARTITION", "Local: Unknown partition") == (
        "the topic has no such partition (_UNKNOWN_PARTITION)"
    )
    assert reason_of("POLICY_VIOLATION", "Broker: Policy violation") == (
        "Policy violation (POLICY_VIOLATION)"
    )


def test_help_shows_arguments_as_people_write_them() -> None:
    shown = CliRunner().invoke(app, ["topics", "create", "--help"]).stdout
    assert "[OPTIONS] TOPIC...\n" in shown
    assert "  TOPIC...  One or more topics." in shown


@pytest.mark.parametrize("command", [[], ["topics"], ["groups"]])
def test_no_summary_is_cut(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"]).stdout
    assert "..." not in shown.split("Commands:")[1]


def test_a_bar_does_not_end_a_cell_of_the_document() -> None:
    rows = [line for line in to_markdown().splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)


def test_a_closed_terminal_ends_a_long_command_as_ctrl_c_does() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
            signal.raise_signal(number)


class EndsLate:
    """The signal comes while it is being taken away: nobody hears what is raised there."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_stop_that_comes_within_a_finalizer_is_heard_all_the_same() -> None:
    def goes_on() -> None:
        kept = EndsLate()
        del kept
        threading.Event().wait(30)

    with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
        goes_on()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_end_is_not_cut_short() -> None:
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
    assert signal.getsignal(signal.SIGINT) is before


def test_jobs_are_counted_by_how_they_ended() -> None:
    done, other, stopped = (
        JobProgress(job="a", state="done"),
        JobProgress(job="b", state="done"),
        JobProgress(job="c", state="stopped"),
    )
    assert ended_line([done, other]) == "2 jobs done"
    assert ended_line([done, stopped, other]) == "2 jobs done, 1 stopped"
    assert ended_line([stopped]) == "1 job stopped"


@pytest.mark.parametrize("piped", ["", "y\n"])
def test_nobody_is_asked_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], piped: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(piped))
    with pytest.raises(NobodyToAsk, match=r"Drop it\? Nothing was changed: .* Pass --yes") as found:
        confirm("Drop it?", yes=False)
    assert exit_code_of(found.value) == 2
    assert capsys.readouterr() == ("", "")
    confirm("Drop it?", yes=True)


@pytest.mark.parametrize(("typed", "is_confirmed"), [("y", True), ("no", False), ("", False)])
def test_a_person_is_asked_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, typed: str, is_confirmed: bool
) -> None:
    keyboard, terminal = os.openpty()
    with open(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(keyboard, f"{typed}\n".encode())
        with contextlib.nullcontext() if is_confirmed else pytest.raises(NotConfirmed):
            confirm("Drop it?", yes=False)
    os.close(keyboard)


@pytest.mark.parametrize(
    ("there", "command"),
    [
        ((), "millstream broker"),
        (("bank.millstream",), "millstream broker --data bank.millstream"),
        (("bank.millstream", "broker.millstream"), "millstream broker"),
        (
            ("a.millstream", "my b.millstream"),
            "millstream broker --data a.millstream` or `millstream broker --data 'my b.millstream'",
        ),
    ],
)
def test_who_finds_no_broker_is_told_to_start_one_with_the_data_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.millstream" / "views").mkdir(parents=True)  # its log was another broker's
    for name in there:
        (tmp_path / name).mkdir()
        (tmp_path / name / "millstream.json").touch()
    assert f"Start one with `{command}`, or say" in str(
        BrokerUnreachable(brokers="127.0.0.1:1", reason="nobody")
    )
