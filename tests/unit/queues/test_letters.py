from dataclasses import replace

import pytest

from millstream.base.letter_notes import LetterNote, note_from, note_key, notes_topic
from millstream.base.record import Record
from millstream.queues.letters import (
    DEATHS_MAX,
    REASON_LENGTH_MAX,
    Death,
    deaths_in,
    headers_of,
    job_record,
    letter_record,
    letters_in,
    redriven_record,
)

DEATH = Death(
    topic="jobs",
    partition=2,
    offset=41,
    group="queue.jobs",
    deliveries=5,
    reason="ValueError: no such user",
    member="m",
    put_ms=1_000,
)
JOB = Record(key=b"k", value=b"v", headers=(("trace", b"7"), ("empty", None)))


def letter(death: Death = DEATH, job: Record = JOB, died_ms: int = 2_000) -> Record:
    return replace(letter_record(job, death), timestamp_ms=died_ms)


def test_a_letter_tells_all_of_its_death_and_keeps_the_job() -> None:
    [read] = letters_in([letter()])
    assert read.id == "jobs-2-41"
    assert read.death == DEATH
    assert (read.key, read.value, read.headers) == (JOB.key, JOB.value, JOB.headers)
    assert (read.died_ms, read.redriven_ms, read.history) == (2_000, None, ())


def test_a_letter_that_was_written_twice_counts_once() -> None:
    [read] = letters_in([letter(), letter(died_ms=2_500)])
    assert (read.copies, read.died_ms) == (2, 2_000)


def test_a_letter_that_was_put_back_is_marked() -> None:
    redriven = replace(redriven_record("jobs-2-41"), timestamp_ms=3_000)
    [read] = letters_in([letter(), redriven])
    assert read.redriven_ms == 3_000


def test_a_copy_that_comes_after_the_redrive_does_not_bring_the_letter_back() -> None:
    redriven = replace(redriven_record("jobs-2-41"), timestamp_ms=3_000)
    [read] = letters_in([letter(), redriven, letter(died_ms=4_000)])
    assert read.redriven_ms == 3_000


def test_after_its_topic_was_made_again_a_letter_of_a_known_id_is_another_one() -> None:
    redriven = replace(redriven_record("jobs-2-41"), timestamp_ms=3_000)
    other = letter(replace(DEATH, put_ms=4_000), died_ms=5_000)
    old, new = letters_in([letter(), redriven, other])
    assert (old.id, old.redriven_ms, new.id, new.redriven_ms) == (new.id, 3_000, old.id, None)
    assert [one.redriven_ms for one in letters_in([letter(), other, redriven])] == [3_000, 3_000]


def test_a_job_that_dies_again_has_both_deaths_in_its_history() -> None:
    [first] = letters_in([letter()])
    back = job_record(first)
    again = replace(DEATH, offset=90, reason="still no such user")
    [read] = letters_in([letter(again, back)])
    assert read.id == "jobs-2-90"
    assert read.history == (DEATH,)
    assert read.headers == JOB.headers


def test_a_history_has_a_limit() -> None:
    job = JOB
    for offset in range(DEATHS_MAX + 3):
        [read] = letters_in([letter(replace(DEATH, offset=offset), job)])
        job = job_record(read)
    assert [one.offset for one in deaths_in(job.headers)] == [*range(3, DEATHS_MAX + 3)]


def test_a_reason_has_a_limit() -> None:
    [read] = letters_in([letter(replace(DEATH, reason="x" * (REASON_LENGTH_MAX + 1)))])
    assert len(read.death.reason) == REASON_LENGTH_MAX


def test_records_that_are_no_letters_are_left_out() -> None:
    assert letters_in([JOB, redriven_record("jobs-0-0")]) == []


def test_a_letter_by_kafka_has_no_member_and_no_time_and_is_read_all_the_same() -> None:
    kafkas = tuple(
        one for one in headers_of(DEATH) if one[0].rpartition(".")[2] not in ("member", "timestamp")
    )
    [read] = letters_in([replace(JOB, headers=kafkas)])
    assert read.death == replace(DEATH, member="", put_ms=-1)


def test_a_record_that_several_jobs_could_not_read_is_one_letter_with_their_names() -> None:
    redriven = replace(redriven_record("jobs-2-41"), timestamp_ms=3_000)
    first, second = (letter(replace(DEATH, group=f"shop.{job}")) for job in ("totals", "mails"))
    [read] = letters_in([first, second, first])
    assert (read.groups, read.copies) == (("shop.totals", "shop.mails"), 3)
    [read] = letters_in([first, redriven, second])  # a job that is behind meets it later
    assert (read.groups, read.redriven_ms) == (("shop.totals", "shop.mails"), 3_000)


def test_notes_name_further_jobs_of_the_letter_that_they_are_of() -> None:
    notes = [
        LetterNote(id="jobs-2-41", written_ms=1_000, job="shop.mails"),
        LetterNote(id="jobs-2-41", written_ms=9_000, job="shop.of_another_topic_of_this_name"),
        LetterNote(id="jobs-2-42", written_ms=1_000, job="shop.of_a_letter_that_was_trimmed"),
    ]
    kept = [note_from(note_key(note)) for note in notes]
    [read] = letters_in([letter()], [note for note in kept if note])
    assert read.groups == ("queue.jobs", "shop.mails")


@pytest.mark.parametrize("key", [None, b"", b"jobs-2-41", b"[]", b'{"id":"a"}', b"\xff"])
def test_what_is_not_a_note_is_passed_over(key: bytes | None) -> None:
    assert note_from(key) is None


def test_a_topic_whose_notes_would_have_too_long_a_name_has_none() -> None:
    assert notes_topic("a" * 243) == "_dead." + "a" * 243
    assert notes_topic("a" * 244) is None
