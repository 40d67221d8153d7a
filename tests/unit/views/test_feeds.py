"""What a subscriber to a view gets: rows, changes in order, tokens to go on from; and when not."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.views.feed_source import RECENT_CHANGES_MAX
from millstream.views.feed_tokens import Place, Tokens
from millstream.views.feeds import (
    AsyncSubscription,
    BadSubscription,
    BadToken,
    Change,
    Subscription,
    TooSlow,
)
from millstream.views.store import BadQuestion
from millstream.views.stores.sqlite.changes import NoPastYet
from millstream.views.stores.sqlite.copy import copy_view, restore_view
from millstream.views.stores.sqlite.file import SqliteStore
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.view import View
from tests.support.view_job import ViewJob
from tests.support.waiting import eventually

# Longer than any test takes on a busy machine: who waits for it in vain has failed.
PATIENCE = 60.0
# Long enough for the feed's thread to look several times.
QUIET = 0.2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "views" / "counts.sqlite"


@pytest.fixture
def job(path: Path) -> Iterator[ViewJob]:
    with ViewJob(path) as job:
        yield job


@pytest.fixture
def view(path: Path) -> Iterator[View]:
    with View("counts", ViewReader(path, view="counts"), place=str(path)) as view:
        yield view


def told(change: Change) -> Any:
    """A change in short: ("upsert", "/", 1)."""
    if change.key is None:
        return change.kind
    return (change.kind, change.key["url"], change.row["count"] if change.row else None)


def next_of(feed: Subscription, count: int) -> list[Any]:
    return [told(change) for change in taken(feed, count)]


def taken(feed: Subscription, count: int) -> list[Change]:
    """Exactly so many."""
    found: list[Change] = []
    while len(found) < count:
        some = feed.take(count - len(found), timeout=PATIENCE)
        assert some, f"only {len(found)} of {count} changes came: {found}"
        found += some
    return found


def is_quiet(feed: Subscription) -> bool:
    return feed.take(1, timeout=QUIET) == []


def test_current_rows_come_first_then_every_change(job: ViewJob, view: View) -> None:
    job.put({"/": 1, "/a": 1})
    with view.subscribe() as feed:
        assert next_of(feed, 3) == [("row", "/", 1), ("row", "/a", 1), "current"]
        job.put({"/": 2})
        job.put({"/a": None, "/b": 1})
        assert next_of(feed, 3) == [("upsert", "/", 2), ("delete", "/a", None), ("upsert", "/b", 1)]
        assert is_quiet(feed)


def test_changes_carry_key_row_and_version(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe() as feed:
        row, current = taken(feed, 2)
        assert (row.key, row.row, row.version) == ({"url": "/"}, {"url": "/", "count": 1}, 1)
        assert (current.key, current.row, current.version) == (None, None, 1)
        job.put({"/": None})
        (gone,) = taken(feed, 1)
        assert (gone.key, gone.row, gone.version) == ({"url": "/"}, None, 2)


def test_a_row_written_as_it_was_is_no_change(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe() as feed:
        taken(feed, 2)
        job.put({"/": 1, "/nowhere": None})
        job.put({"/": 2})
        (change,) = taken(feed, 1)
        assert (told(change), change.version) == (("upsert", "/", 2), 2)


def test_every_token_goes_on_after_its_own_change(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe() as feed:
        row, current = taken(feed, 2)
        assert row.token is None, "there is no going on in the midst of rows"
        job.put({"/": 2, "/a": 1})
        job.put({"/": 3, "/a": None})
        changes = [current, *taken(feed, 4)]
    for place, change in enumerate(changes):
        rest = [told(one) for one in changes[place + 1 :]]
        with view.subscribe(since=change.token) as feed:
            assert next_of(feed, len(rest)) == rest
            assert feed.token == changes[-1].token


def test_a_subscriber_without_news_gets_a_newer_token(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe(where={"url": "/"}, heartbeat=0.01) as feed:
        current = taken(feed, 2)[-1]
        job.put({"/a": 1})
        mark = next(mark for mark in feed if mark.token != current.token)
        assert (mark.kind, mark.version, mark.token) == ("current", 2, feed.token)
    with view.subscribe(where={"url": "/"}, since=mark.token) as feed:
        assert is_quiet(feed)


def test_a_filtered_feed_tells_of_rows_that_start_and_cease_to_match(
    job: ViewJob, view: View
) -> None:
    job.put({"/": 1, "/a": 5})
    with view.subscribe(where={"count >=": 3}) as feed:
        assert next_of(feed, 2) == [("row", "/a", 5), "current"]
        job.put({"/": 3})
        job.put({"/": 4, "/a": 2})
        job.put({"/a": None, "/b": 1})
        job.put({"/": None})
        assert next_of(feed, 4) == [
            ("upsert", "/", 3),
            ("upsert", "/", 4),
            ("delete", "/a", None),
            ("delete", "/", None),
        ]
        assert is_quiet(feed)


def test_conditions_stay_as_they_were_given(job: ViewJob, view: View) -> None:
    job.put({"/": 1, "/a": 1, "/b": 1})
    where: dict[str, Any] = {"url in": iter(["/", "/a"]), "count in": [1, 2]}
    with view.subscribe(where=where) as feed:
        assert next_of(feed, 3) == [("row", "/", 1), ("row", "/a", 1), "current"]
        where["count in"].remove(2)
        where["url"] = "/b"
        job.put({"/b": 2, "/": 2, "/a": 3})
        assert set(next_of(feed, 2)) == {("upsert", "/", 2), ("delete", "/a", None)}
        assert is_quiet(feed)


def test_the_values_of_in_have_no_order_in_a_token(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe(where={"url in": {"/", "/a", "/b"}}) as feed:
        token = taken(feed, 2)[-1].token
    for same in (["/", "/a", "/b"], ("/b", "/a", "/"), iter(["/a", "/", "/b", "/"])):
        view.subscribe(where={"url in": same}, since=token).close()
    with pytest.raises(BadToken):
        view.subscribe(where={"url in": ["/", "/a"]}, since=token)


def test_a_token_of_a_set_is_the_same_in_every_process() -> None:
    code = (
        "from millstream.views.feed_tokens import Place, tokens_of;"
        "print(tokens_of('v', {'url in': {'/a', '/b', '/c'}}).write(Place('00' * 8, 5)))"
    )

    def token(seed: int) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        return subprocess.check_output([sys.executable, "-c", code], env=environment)

    assert len({token(seed) for seed in range(4)}) == 1


def test_conditions_are_checked(job: ViewJob, view: View) -> None:
    with view.subscribe(where={"cuont": 3}) as feed, pytest.raises(BadQuestion, match="cuont"):
        next(feed)


# --- tokens


def test_a_forged_or_foreign_token_is_refused(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe() as feed:
        token = taken(feed, 2)[-1].token
    assert token is not None
    turned = token[:-1] + ("A" if token[-1] != "A" else "B")
    foreign = Tokens("others", "[]").write(Place("00" * 8, 1))
    for bad in ("", "x", "é" * 32, token[:-1], turned, token + "AAAA", foreign):
        with pytest.raises(BadToken, match="is no token of a feed of view counts"):
            view.subscribe(since=bad)


def test_a_token_is_good_for_its_own_conditions_only(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe(where={"url": "/", "count >": 0}) as feed:
        token = taken(feed, 2)[-1].token
    with pytest.raises(BadToken):
        view.subscribe(since=token)
    with view.subscribe(where={"count >": 0, "url": "/"}, since=token) as feed:
        job.put({"/": 2})
        assert next_of(feed, 1) == [("upsert", "/", 2)]


def test_a_token_that_is_older_than_what_is_kept_gets_a_reset(path: Path, view: View) -> None:
    now = [0]
    with ViewJob(path, clock=lambda: now[0]) as job:
        job.put({"/": 1})
        with view.subscribe() as feed:
            token = taken(feed, 2)[-1].token
        now[0] += 11 * 60_000
        job.put({"/": 2})
        with view.subscribe(since=token) as feed:
            assert next_of(feed, 1) == [("upsert", "/", 2)], "the version before is the floor"
        now[0] += 11 * 60_000
        job.put({"/a": 1})
        with view.subscribe(since=token) as feed:
            assert next_of(feed, 4) == ["reset", ("row", "/", 2), ("row", "/a", 1), "current"]


def test_a_token_of_a_copy_that_was_replaced_gets_a_reset(
    path: Path, view: View, tmp_path: Path
) -> None:
    with ViewJob(path) as job:
        job.put({"/": 1})
        copy_view(path, tmp_path / "copy.sqlite")
        job.put({"/": 2})
        with view.subscribe() as feed:
            token = taken(feed, 2)[-1].token
    restore_view(tmp_path / "copy.sqlite", path)
    with ViewJob(path, batch=1) as job:
        job.put({"/": 3})
        job.put({"/": 4})
        with view.subscribe(since=token) as feed:
            assert next_of(feed, 3) == ["reset", ("row", "/", 4), "current"]


# --- views that come, go and are rebuilt


def test_who_subscribes_early_waits_for_the_view(path: Path, view: View) -> None:
    with view.subscribe() as feed:
        assert is_quiet(feed)
        with ViewJob(path) as job:
            job.put({"/": 1})
            found = next_of(feed, 2)
        assert found in ([("row", "/", 1), "current"], ["current", ("upsert", "/", 1)])


def test_a_rebuilt_view_starts_its_subscribers_over(path: Path, job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe() as feed, ViewJob(path, generation=2, query="b") as rebuilt:
        token = taken(feed, 2)[-1].token
        rebuilt.put({"/": 10, "/a": 10})
        assert is_quiet(feed), "nobody sees it before it is served"
        rebuilt.serve()
        afterwards = ["reset", ("row", "/", 10), ("row", "/a", 10), "current"]
        assert next_of(feed, 4) == afterwards
        rebuilt.put({"/": 11})
        assert next_of(feed, 1) == [("upsert", "/", 11)]
        with view.subscribe(since=token) as late:
            assert next_of(late, 4)[:2] == ["reset", ("row", "/", 11)]


def test_a_rolled_back_view_starts_its_subscribers_over(
    path: Path, job: ViewJob, view: View
) -> None:
    job.put({"/": 1})
    with ViewJob(path, generation=2, query="b") as rebuilt:
        rebuilt.put({"/": 10})
        rebuilt.serve()
    with view.subscribe() as feed:
        assert next_of(feed, 2) == [("row", "/", 10), "current"]
        SqliteStore(path, view="counts", key=["url"]).serve(1)
        assert next_of(feed, 3) == ["reset", ("row", "/", 1), "current"]


def test_subscribers_of_a_dropped_view_wait_for_its_return(
    path: Path, job: ViewJob, view: View
) -> None:
    job.put({"/": 1})
    with view.subscribe() as feed:
        taken(feed, 2)
        job.close()
        SqliteStore(path, view="counts", key=["url"]).drop()
        assert next_of(feed, 1) == ["reset"]
        with ViewJob(path) as again:
            again.put({"/b": 1})
            found = next_of(feed, 2)
        assert found in ([("row", "/b", 1), "current"], ["current", ("upsert", "/b", 1)])


def test_a_view_that_is_just_being_dropped_gives_a_reset(
    path: Path, job: ViewJob, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.put({"/": 1})
    with view.subscribe() as feed:
        taken(feed, 2)
        monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        SqliteStore(path, view="counts", key=["url"]).drop()
        assert next_of(feed, 1) == ["reset"]


def test_a_job_that_starts_over_tells_only_the_difference(path: Path, view: View) -> None:
    with ViewJob(path) as job:
        job.put({"/": 1, "/a": 1, "/b": 1})
    with view.subscribe() as feed, ViewJob(path, query="b") as job:
        taken(feed, 4)
        job.put({"/": 1, "/a": 2})
        assert sorted(next_of(feed, 2)) == [("delete", "/b", None), ("upsert", "/a", 2)]
        assert is_quiet(feed)


def test_a_file_of_the_older_format_says_what_to_do(path: Path, job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    job.close()
    to_format_1(path)
    with view.subscribe() as feed, pytest.raises(NoPastYet, match="Run its job once"):
        next(feed)
    assert view.get("/") == {"url": "/", "count": 1}


def test_a_file_of_the_older_format_is_taken_over_by_its_job(path: Path, view: View) -> None:
    with ViewJob(path) as job:
        job.put({"/": 1})
    to_format_1(path)
    with ViewJob(path, batch=1) as job, view.subscribe() as feed:
        assert next_of(feed, 2) == [("row", "/", 1), "current"]
        job.put({"/": 2})
        assert next_of(feed, 1) == [("upsert", "/", 2)]


def to_format_1(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for table in ("changes_1", "_versions", "_timelines"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 1")


# --- subscribers that are slow


def test_a_slow_subscriber_with_a_buffer_gets_every_change(job: ViewJob, view: View) -> None:
    job.put({"/": 0})
    with view.subscribe(slow="buffer") as feed:
        taken(feed, 2)
        for number in range(1, 4):
            job.put({f"/{place}": number for place in range(RECENT_CHANGES_MAX)})
        found = taken(feed, 3 * RECENT_CHANGES_MAX)
        assert [one.row["count"] for one in found if one.row] == [
            number for number in (1, 2, 3) for _ in range(RECENT_CHANGES_MAX)
        ]


@pytest.mark.parametrize("slow", ["buffer", "disconnect"])
def test_more_than_may_wait_disconnects(job: ViewJob, view: View, slow: Any) -> None:
    job.put({"/": 0})
    with view.subscribe(slow=slow, buffer_max=3) as feed:
        taken(feed, 2)
        job.put({"/": 1})
        assert next_of(feed, 1) == [("upsert", "/", 1)]
        one_at_a_time(job, range(2, 6))
        eventually(lambda: seen_version(feed) == 6, what="the feed has seen all")
        assert next_of(feed, 4)[-1] == ("upsert", "/", 5), "3, and the newest batch"
        one_at_a_time(job, range(6, 11))
        eventually(lambda: seen_version(feed) == 11, what="the feed has seen all")
        with pytest.raises(TooSlow, match="5 changes wait for it, of 3 that may") as slowness:
            next(feed)
    with view.subscribe(slow=slow, buffer_max=3, since=slowness.value.token) as feed:
        assert next_of(feed, 5) == [("upsert", "/", count) for count in range(6, 11)]


def test_one_large_batch_makes_nobody_slow(job: ViewJob, view: View) -> None:
    job.put({"/": 0})
    with view.subscribe(slow="disconnect", buffer_max=3) as feed:
        taken(feed, 2)
        job.put({f"/{place}": 1 for place in range(100)})
        assert len(taken(feed, 100)) == 100


def test_who_wants_the_latest_skips_what_lies_between(job: ViewJob, view: View) -> None:
    job.put({"/": 0, "/a": 0})
    with view.subscribe(slow="latest") as feed:
        taken(feed, 3)
        one_at_a_time(job, range(1, 5))
        job.put({"/a": None, "/b": 1})
        job.put({"/b": None})
        job.put({"/c": 1})
        eventually(lambda: seen_version(feed) == 8, what="the feed has seen all")
        changes = taken(feed, 3)
        assert [told(one) for one in changes] == [
            ("upsert", "/", 4),
            ("delete", "/a", None),
            ("upsert", "/c", 1),
        ]
        assert [one.version for one in changes] == [5, 6, 8]
        assert is_quiet(feed)


def test_who_had_a_part_of_the_latest_gets_the_rest(job: ViewJob, view: View) -> None:
    job.put({"/": 0})
    with view.subscribe(slow="latest") as feed:
        taken(feed, 2)
        job.put({"/a": 1, "/b": 1})
        (part,) = taken(feed, 1)
    assert told(part) == ("upsert", "/a", 1)
    job.put({"/a": None})
    with view.subscribe(slow="latest", since=part.token) as feed:
        assert next_of(feed, 2) == [("upsert", "/b", 1), ("delete", "/a", None)]


def test_who_wants_the_latest_is_never_disconnected(path: Path, view: View) -> None:
    now = [0]
    with ViewJob(path, clock=lambda: now[0]) as job, view.subscribe(slow="latest") as feed:
        job.put({"/": 1})
        eventually(lambda: seen_version(feed) == 1, what="the feed has seen the row")
        assert next_of(feed, 2) == [("row", "/", 1), "current"]
        for count in range(2, 5):
            now[0] += 11 * 60_000
            job.put({"/": count})
        eventually(lambda: seen_version(feed) == 4, what="the feed has seen all")
        assert next_of(feed, 3) == ["reset", ("row", "/", 4), "current"]


def test_who_is_slower_than_what_is_kept_is_disconnected(path: Path, view: View) -> None:
    now = [0]
    with ViewJob(path, clock=lambda: now[0]) as job, view.subscribe() as feed:
        job.put({"/": 1})
        eventually(lambda: seen_version(feed) == 1, what="the feed has seen the row")
        taken(feed, 2)
        for count in range(2, 5):
            now[0] += 11 * 60_000
            job.put({"/": count})
        eventually(lambda: seen_version(feed) == 4, what="the feed has seen all")
        with pytest.raises(TooSlow, match="its next changes are no longer kept") as slowness:
            next(feed)
        with view.subscribe(since=slowness.value.token) as again:
            assert next_of(again, 3) == ["reset", ("row", "/", 4), "current"]


def test_a_load_that_is_not_kept_as_changes_starts_subscribers_over(
    job: ViewJob, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.views.history.FEED_CHANGES_MAX", 3)
    job.put({"/": 1})
    with view.subscribe(slow="disconnect") as feed:
        taken(feed, 2)
        job.put({"/": 2, "/a": 1, "/b": 1})
        assert len(taken(feed, 3)) == 3
        job.put({"/": 3, "/a": 2, "/b": 2, "/c": 1})
        assert next_of(feed, 6)[:2] == ["reset", ("row", "/", 3)]


def test_bad_wishes_are_refused(view: View) -> None:
    with pytest.raises(BadSubscription, match="one of buffer, latest, disconnect"):
        view.subscribe(slow="never")  # type: ignore[arg-type]
    with pytest.raises(BadSubscription, match="at least one change must wait"):
        view.subscribe(buffer_max=0)


def one_at_a_time(job: ViewJob, counts: range) -> None:
    for count in counts:
        job.put({"/": count})


def seen_version(feed: Subscription | AsyncSubscription) -> int | None:
    recent = feed._feed.newest()
    return recent.tail.version if recent is not None and recent.tail is not None else None


# --- threads and loops


def test_a_subscription_ends_when_nothing_comes_and_goes_on(job: ViewJob, view: View) -> None:
    job.put({"/": 1})
    with view.subscribe(timeout=QUIET) as feed:
        eventually(lambda: seen_version(feed) == 1, what="the feed has seen the row")
        assert [told(change) for change in feed] == [("row", "/", 1), "current"]
        job.put({"/": 2})
        eventually(lambda: seen_version(feed) == 2, what="the feed has seen the change")
        assert [told(change) for change in feed] == [("upsert", "/", 2)]


def test_a_subscription_that_waits_can_be_closed(job: ViewJob, view: View) -> None:
    feed = view.subscribe()
    found: list[Change] = []
    waiting = threading.Thread(target=lambda: found.extend(feed))
    waiting.start()
    eventually(lambda: [told(one) for one in found] == ["current"], what="the empty view is told")
    feed.close()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_all_subscribers_share_one_thread_which_goes_with_the_last(
    job: ViewJob, view: View
) -> None:
    job.put({"/": 1})
    feeds = [view.subscribe() for _ in range(20)]
    for feed in feeds:
        taken(feed, 2)
    assert len(watchers()) == 1
    job.put({"/": 2})
    assert all(next_of(feed, 1) == [("upsert", "/", 2)] for feed in feeds)
    for feed in feeds:
        feed.close()
    eventually(lambda: not watchers(), what="the feed's thread ends")
    with view.subscribe() as feed:
        assert next_of(feed, 2) == [("row", "/", 2), "current"]


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "feed of counts"]


def test_an_async_subscription_gets_the_same(job: ViewJob, view: View) -> None:
    async def follow() -> list[Any]:
        found = []
        async with view.subscribe_async(where={"count >": 0}) as feed:
            async for change in feed:
                found.append(told(change))
                if change.kind == "current":
                    await asyncio.to_thread(job.put, {"/": 2, "/a": 0})
                    await asyncio.to_thread(job.put, {"/": 0})
                if change.kind == "delete":
                    return found
        return found

    job.put({"/": 1})
    assert asyncio.run(follow()) == [
        ("row", "/", 1),
        "current",
        ("upsert", "/", 2),
        ("delete", "/", None),
    ]


def test_a_cancelled_wait_loses_nothing(job: ViewJob, view: View) -> None:
    async def follow() -> list[Any]:
        found: list[Any] = []
        async with view.subscribe_async() as feed:
            while not found or found[-1] != ("upsert", "/", 5):
                for patience in (0, 0.001):  # while it reads, and while it waits
                    with contextlib.suppress(TimeoutError):
                        found.append(told(await asyncio.wait_for(anext(feed), patience)))
                if len(found) >= 2 and job.batch < 6:
                    await asyncio.to_thread(job.put, {"/": job.batch})
        return found

    job.put({"/": 0})
    assert asyncio.run(asyncio.wait_for(follow(), PATIENCE)) == [
        ("row", "/", 0),
        "current",
        *[("upsert", "/", count) for count in range(1, 6)],
    ]


def test_an_async_subscription_ends_and_takes(job: ViewJob, view: View) -> None:
    async def follow() -> None:
        async with view.subscribe_async(timeout=QUIET) as feed:
            await asyncio.to_thread(
                eventually, lambda: seen_version(feed) == 1, what="the feed has seen the row"
            )
            assert [told(change) async for change in feed] == [("row", "/", 1), "current"]
            await asyncio.to_thread(job.put, {"/": 2, "/a": 1})
            assert len(await feed.take(1, timeout=PATIENCE)) == 1
            assert len(await feed.take(5, timeout=PATIENCE)) == 1
            assert await feed.take(5, timeout=QUIET) == []

    job.put({"/": 1})
    asyncio.run(follow())
