"""Every page of the console: what it shows, that it is escaped, and that it asks for little."""

import re
import threading
import time
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from millstream.base.errors import Retryable
from millstream.processing.jobs.lag import Lag
from millstream.processing.jobs.progress import JobProgress
from millstream.web.console.app_pages import KEY_CHARACTERS_MAX, row_place
from millstream.web.console.facts import RecordSeen
from millstream.web.console.figures import day_clock
from millstream.web.console.routes import PAGES
from millstream.web.limits import TAILS_MAX
from tests.support.console_source import HOSTILE, NOW_MS, MemorySource, MemoryTail, record
from tests.support.web_application import SALES, MemoryApplication
from tests.support.web_client import WITHIN_S, WebClient

PATHS = (
    "",
    "topics",
    "topics/clicks",
    "topics/clicks/0/0",
    "groups",
    "groups/group-01",
    "groups/team/a",
    "captures",
    "captures/shopdb",
    "jobs",
    "jobs/sales",
    "jobs/mails",
    "views",
    "views/sales",
    "views/sales/row?key=%5B%22ada%22%2C%222026-11-01%22%5D",
    "queues",
    "queues/restock",
    "aggregates",
    "aggregates/Stock",
    "aggregates/Stock/tea",
)
ALONE = {"br", "wbr", "hr", "img", "input", "link", "meta", "path", "rect", "circle", "ellipse"}


class WaitingTail(MemoryTail):
    """Its first poll ends when all others have begun."""

    def __init__(self, all_poll: threading.Barrier) -> None:
        super().__init__()
        self._all_poll, self._left = all_poll, TAILS_MAX
        self._lock = threading.Lock()

    def poll(self, timeout_s: float) -> list[RecordSeen]:
        with self._lock:
            self._left -= 1
            is_first = self._left >= 0
        if is_first:
            self._all_poll.wait(WITHIN_S)
        return [record(1)]


class SlowTail(MemoryTail):
    def __init__(self) -> None:
        super().__init__()
        self.is_polled = threading.Event()
        self.was_closed_in_use = False

    def poll(self, timeout_s: float) -> list[RecordSeen]:
        if self.coming:
            return self.coming.pop(0)
        self.is_polled.set()
        time.sleep(0.2)
        self.was_closed_in_use = self.is_closed
        return [record(2)]


class Outline(HTMLParser):
    """Elements that are closed in order; their ids; what inline code there is."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if "id" in given:
            self.ids.append(given["id"] or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ALONE:
            assert self.open.pop() == tag


@pytest.fixture
def filled(source: MemorySource) -> MemorySource:
    source.topics.written = [record(0, b'{"user": "ada"}'), record(1, HOSTILE.encode())]
    return source


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_whole_html_without_code_in_it(
    console: WebClient, filled: MemorySource, path: str
) -> None:
    answer = console.get(f"/console/{path}")
    assert answer.status_code == 200, answer.text
    outline = Outline()
    outline.feed(answer.text)
    assert outline.open == []
    assert outline.inline == []
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == "h1"
    assert outline.headings.count("h1") == 1
    assert HOSTILE not in answer.text


def test_the_pages_of_the_table_are_all_looked_at() -> None:
    patterns = [re.sub(r"\{[^}]+:path\}", ".+", one.path) for one in PAGES]
    paths = [f"/console/{path.partition('?')[0]}" for path in PATHS]
    for pattern in (re.sub(r"\{[^}]+\}", "[^/]+", one) for one in patterns):
        assert any(re.fullmatch(pattern, path) for path in paths), pattern


def test_a_page_may_load_nothing_of_another_host_and_be_framed_by_none(
    console: WebClient,
) -> None:
    headers = console.get("/console/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_every_file_that_a_page_names_is_there(console: WebClient) -> None:
    text = console.get("/console/").text
    names = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', text)
    assert len(names) == 3
    assert {console.get(name).status_code for name in names} == {200}
    assert console.get("/console/static/../sessions.py").status_code == 404
    assert console.get("/console/static/sessions.py").status_code == 404


def test_an_address_that_is_no_page_is_told_by_a_page(console: WebClient) -> None:
    answer = console.get("/console/nope/x", {"Accept": "text/html"})
    assert answer.status_code == 404
    assert "there is no page /console/nope/x" in answer.text
    assert "To the overview" in answer.text


def test_the_links_of_the_overview_lead_somewhere(console: WebClient) -> None:
    links = set(re.findall(r'href="(/console/[^"#?]*)"', console.get("/console/").text))
    assert "/console/jobs/sales" in links
    wrong = {link for link in links if console.get(link).status_code != 200}
    assert wrong == {"/console/topics/shopdb.orders"}  # which nobody has written yet


def test_the_front_of_the_server_is_the_console(console: WebClient, client: WebClient) -> None:
    assert console.get("/").headers["location"] == "/console/"
    assert console.get("/console").headers["location"] == "/console/"
    assert client.get("/").status_code == 200
    assert client.get("/console/").status_code == 404


# --- topics


def test_only_the_topics_of_the_page_are_asked_for(
    console: WebClient, source: MemorySource
) -> None:
    source.topics.counts = {f"topic-{number:05}": 1 for number in range(10_000)}
    text = console.get("/console/topics", page=3).text
    assert [*source.topics.asked[-1]] == [f"topic-{number:05}" for number in range(100, 150)]
    assert "10,000 topics, page 3 of 200" in text
    assert console.get("/console/topics", page=999_999).status_code == 200


def test_a_search_finds_names_in_any_case(console: WebClient, source: MemorySource) -> None:
    text = console.get("/console/topics", q="CLI").text
    assert "clicks" in text
    assert [*source.topics.asked[-1]] == ["clicks"]


def test_internal_topics_are_shown_to_who_asks(console: WebClient) -> None:
    assert "/console/topics/_state" not in console.get("/console/topics").text
    assert "/console/topics/_state" in console.get("/console/topics", internal="yes").text


def test_records_are_filtered_by_what_they_say(console: WebClient, filled: MemorySource) -> None:
    assert "2 newest" in console.get("/console/topics/clicks").text
    text = console.get("/console/topics/clicks", q="ADA").text
    assert "1 newest" in text
    assert "/console/topics/clicks/0/1" not in text


def test_a_search_says_how_far_it_looked(console: WebClient, filled: MemorySource) -> None:
    text = console.get("/console/topics/clicks", q="nobody").text
    assert "None of the newest 2 records has “nobody”" in text
    assert "Looked at" not in text
    filled.topics.is_cut = True
    assert "Looked at the newest 2 records only" in console.get("/console/topics/clicks").text
    text = console.get("/console/topics/clicks", q="nobody", offset=1).text
    assert "Looked at 1 record from this offset on only" in text
    assert "None of 1 record from this offset on has “nobody”" in text


def test_partitions_that_were_not_looked_at_are_told(
    console: WebClient, filled: MemorySource
) -> None:
    filled.topics.unread = (4, 5, 6, 9)
    text = console.get("/console/topics/clicks").text
    assert "Not looked at: 4 partitions (4–6, 9)." in text


def test_a_record_of_any_json_has_a_page(console: WebClient, source: MemorySource) -> None:
    source.topics.written = [record(0, b'{"a":"\\ud800"}')]
    assert "\\ud800" in console.get("/console/topics/clicks/0/0").text


def test_a_record_whose_headers_cannot_be_read_says_so(
    console: WebClient, source: MemorySource
) -> None:
    source.topics.written = [replace(record(0, b"ada"), headers=None)]
    text = console.get("/console/topics/clicks/0/0").text
    assert "ada" in text
    assert "cannot be shown: the name of one is not UTF-8" in text
    assert "cannot be shown" not in console.get("/console/topics/clicks").text


@pytest.mark.parametrize("path", ["topics/none", "jobs/none", "captures/none", "queues/none"])
def test_what_is_not_there_is_a_page_that_says_so(console: WebClient, path: str) -> None:
    answer = console.get(f"/console/{path}")
    assert answer.status_code == 404
    assert "text/html" in answer.headers["content-type"]
    assert "none" in answer.text


@pytest.mark.parametrize("query", [{"partition": "x"}, {"partition": "9"}, {"page": "²"}])
def test_a_number_that_is_none_is_refused(console: WebClient, query: dict[str, str]) -> None:
    assert console.get("/console/topics/clicks", **query).status_code == 400


@pytest.mark.parametrize("partition", ["2", "3000000000", "x"])
def test_a_partition_that_is_not_there_is_not_followed(console: WebClient, partition: str) -> None:
    answer = console.get("/console/topics/clicks/tail", partition=partition)
    assert answer.status_code == 400


def test_a_record_that_is_gone_is_not_another_one(console: WebClient, filled: MemorySource) -> None:
    assert "ada" in console.get("/console/topics/clicks/0/0").text
    assert console.get("/console/topics/clicks/0/7").status_code == 404
    assert console.get("/console/topics/clicks/0/x").status_code == 404
    assert console.get("/console/topics/clicks/8/0").status_code == 404


# --- how things are: one word, the same on all pages


def said(text: str) -> dict[str, set[str]]:
    """Of what a page says how it is, and the words that it says, be they text or picture."""
    found: dict[str, set[str]] = {}
    badges = r'class="condition ([a-z-]+)" data-of="([^"]+)"><svg.*?</svg>([a-z ]+)</span>'
    for mark, of, word in re.findall(badges, text, re.DOTALL):
        assert mark == word.replace(" ", "-")
        found.setdefault(of, set()).add(word)
    boxes = r'class="box [a-z]+ ([a-z-]+)" data-of="([^"]+)" data-word="([a-z ]+)"'
    for mark, of, word in re.findall(boxes, text):
        assert mark == word.replace(" ", "-")
        found.setdefault(of, set()).add(word)
    return found


RUNS_WELL = JobProgress(
    job="sales", state="running", reported="2026", batch=4, lag={"clicks": 0}, lag_ms={"clicks": 0}
)
LAGS = replace(RUNS_WELL, lag={"clicks": 56_800}, lag_ms={"clicks": 240_000})


@pytest.mark.parametrize(
    ("progress", "is_stale", "word"),
    [
        (RUNS_WELL, False, "good"),
        (LAGS, False, "behind"),
        (LAGS, True, "stopped"),
        (replace(RUNS_WELL, state="stopped"), False, "stopped"),
        (replace(RUNS_WELL, state="failed", error="no column"), False, "failed"),
        (replace(RUNS_WELL, state="failed", error="no column"), True, "failed"),
        (replace(RUNS_WELL, state="waiting", error="no broker"), False, "failed"),
        (JobProgress(job="sales"), False, "starting"),
        (replace(RUNS_WELL, lag={}, lag_ms={}), False, "running"),
        (replace(RUNS_WELL, state="done"), False, "done"),
    ],
)
def test_a_job_and_its_view_are_in_one_word_on_all_pages(
    console: WebClient, source: MemorySource, progress: JobProgress, is_stale: bool, word: str
) -> None:
    source.declared.progress, source.declared.is_stale = progress, is_stale
    seen = [said(console.get(f"/console/{path}").text) for path in PATHS]
    words = {
        of: {word for page in seen for word in page.get(of, ())} for page in seen for of in page
    }
    assert words["job sales"] == {word}
    assert words["view sales"] == {word}
    assert {of for of, found in words.items() if len(found) > 1} == set()
    assert sum("job sales" in page for page in seen) >= 3
    assert sum("view sales" in page for page in seen) >= 3


def test_the_first_page_that_anybody_opens_has_figures(console: WebClient) -> None:
    text = console.get("/console/").text
    assert "100 written" in text
    assert "10 rows" in text


def test_a_stopped_job_is_measured_against_the_end_of_its_topics(
    console: WebClient, source: MemorySource
) -> None:
    source.declared.progress = replace(RUNS_WELL, state="stopped")
    source.declared.measured = Lag(records={"clicks": 12_000}, ms={"clicks": 3 * 3_600_000})
    for path in ("", "jobs", "jobs/sales", "views", "views/sales"):
        text = console.get(f"/console/{path}").text
        assert "12,000 records" in text or "12k records behind" in text, path
        assert f"current to {day_clock(NOW_MS - 3 * 3_600_000, NOW_MS)}" in text, path


def test_a_watermark_that_leaves_room_for_corrections_is_shown_without_it(
    console: WebClient, source: MemorySource
) -> None:
    source.declared.progress = replace(RUNS_WELL, watermark="2026-11-17T12:03:07.000Z")
    assert ">2026-11-17 12:03 UTC</span>" in console.get("/console/jobs/sales").text
    source.declared.corrects_ms = 86_390_000
    for path in ("", "jobs", "jobs/sales"):
        text = console.get(f"/console/{path}").text
        assert ">12:02:57 UTC</span>" in text, path
        assert ">2026-11-17 12:03" not in text, path
    assert "corrects results back to 2026-11-17 12:03:07 UTC" in text


@pytest.mark.parametrize(
    ("workers", "waiting", "word"),
    [(1, 0, "good"), (1, 1, "good"), (1, 9, "running"), (0, 9, "stopped"), (0, None, "stopped")],
)
def test_a_queue_is_not_good_because_somebody_works_on_it(
    workers: int, waiting: int | None, word: str, console: WebClient, source: MemorySource
) -> None:
    source.queues.workers, source.queues.waiting = workers, waiting
    for path in ("queues", "queues/restock"):
        assert said(console.get(f"/console/{path}").text) == {"queue restock": {word}}, path


def test_counts_of_what_was_set_aside_lead_to_it(console: WebClient, source: MemorySource) -> None:
    assert "clicks.dead" not in console.get("/console/jobs/sales").text
    source.topics.counts |= {"clicks.dead": 1, "clicks.late": 1}
    for path in ("", "jobs", "jobs/sales"):
        text = console.get(f"/console/{path}").text
        assert '<a href="/console/topics/clicks.dead">' in text, path
        assert '<a href="/console/topics/clicks.late">' in text, path
    text = console.get("/console/topics/clicks").text
    assert '<a href="/console/topics/clicks.dead">90</a>' in text
    assert '<a href="/console/queues/restock#dead">3</a>' in console.get("/console/queues").text


# --- views, jobs, captures


def test_rows_of_a_view_are_found_by_a_column(console: WebClient) -> None:
    text = console.get("/console/views/sales", column="day", operator="<", value="2026-11-02").text
    assert text.count(">2026-11-01<") == 2
    assert "2026-11-03" not in text
    numbers = console.get("/console/views/sales", column="share", operator=">", value="0.9").text
    assert "No rows." in numbers


def test_each_row_of_a_view_opens_whole(console: WebClient, application: MemoryApplication) -> None:
    """Also one whose key has what an address has signs for, and whose value fills a page."""
    long = f"{HOSTILE}&?#/%" + 320 * "long"
    rows = application.opened["sales"].range(limit=1)
    application.kept["sales"].write([rows[0] | {"shop": long}])
    text = console.get("/console/views/sales").text
    assert 300 * "long" not in re.sub(r'(?:href|title)="[^"]*"', "", text)
    places = re.findall(r'href="(/console/views/sales/row[^"]+)"', text)
    assert len(places) == 11
    pages = [console.get(unescape(place)) for place in places]
    assert {page.status_code for page in pages} == {200}
    assert sum(320 * "long" in page.text for page in pages) == 1
    for field in SALES:
        assert all(f"<dt>{field.name} <small>" in page.text for page in pages)


@pytest.mark.parametrize(
    ("key", "status"), [("", 400), ("[", 400), ('["ada"]', 422), ('["ada","2026-12-01"]', 404)]
)
def test_a_row_that_is_not_there_is_told(console: WebClient, key: str, status: int) -> None:
    assert console.get("/console/views/sales/row", key=key).status_code == status


def test_a_key_that_is_too_long_for_an_address_has_no_page() -> None:
    room = KEY_CHARACTERS_MAX - len('[""]')
    assert row_place("v", ["k"], {"k": room * "x"}) != ""
    assert row_place("v", ["k"], {"k": (room + 1) * "x"}) == ""


def test_a_search_that_does_not_fit_is_told_beside_the_form(console: WebClient) -> None:
    for query in (
        {"column": "day", "operator": "=", "value": "soon"},
        {"column": "nothing", "value": "1"},
        {"column": "day", "operator": "like", "value": "1"},
    ):
        answer = console.get("/console/views/sales", **query)
        assert answer.status_code == 200
        assert 'class="fault"' in answer.text


def test_a_job_that_nobody_runs_any_more_is_told(console: WebClient, source: MemorySource) -> None:
    assert "told nothing for a while" not in console.get("/console/").text
    source.declared.is_stale = True
    assert "told nothing for a while" in console.get("/console/").text
    assert said(console.get("/console/jobs").text)["job sales"] == {"stopped"}


def test_a_capture_tells_how_far_its_load_is(console: WebClient) -> None:
    text = console.get("/console/captures/shopdb").text
    assert '<progress max="200" value="50"' in text
    assert "SHOPDB_PASSWORD" in text  # the variable's name, as the application wrote it


@pytest.mark.parametrize("path", ["/", "/captures", "/captures/shopdb"])
def test_every_page_says_of_a_capture_that_it_cannot_write(
    path: str, console: WebClient, source: MemorySource
) -> None:
    assert "cannot write" not in console.get(f"/console{path}").text
    source.declared.refusal = "the broker refuses records, as its disk is full"
    text = console.get(f"/console{path}").text
    assert "cannot write" in text
    assert (source.declared.refusal in text) is (path != "/captures")


def test_the_overview_says_first_that_the_brokers_disk_is_full(
    console: WebClient, source: MemorySource
) -> None:
    full = "the disk is full: /data of the broker at 127.0.0.1:9092"
    assert full not in console.get("/console/").text
    source.topics.troubles_seen = (full,)
    assert full in console.get("/console/").text


def test_a_capture_says_that_its_load_waits_for_the_stream(
    console: WebClient, source: MemorySource
) -> None:
    why = "The load waits for the stream to catch up: 1h behind"
    assert why not in console.get("/console/captures/shopdb").text
    assert source.declared.status is not None
    source.declared.status = replace(
        source.declared.status, state="loading", behind_ms=3_600_000, lag_bytes=None
    )
    assert why in console.get("/console/captures/shopdb").text


def test_without_aggregates_there_is_no_page_for_them(
    console: WebClient, source: MemorySource
) -> None:
    assert "Aggregates" in console.get("/console/").text
    source.aggregates.kinds = list  # type: ignore[method-assign]
    assert "Aggregates" not in console.get("/console/").text


def test_an_aggregate_is_shown_as_of_any_version(console: WebClient) -> None:
    assert "&#34;left&#34;: 5" in console.get("/console/aggregates/Stock/tea").text
    assert "&#34;left&#34;: 10" in console.get("/console/aggregates/Stock/tea", version=1).text
    assert console.get("/console/aggregates/Stock/toast/x").status_code == 200
    assert console.get("/console/aggregates/Stock/none").status_code == 404


# --- trouble


class NoBroker(Retryable):
    pass


def test_without_a_broker_the_flow_is_still_shown(console: WebClient, source: MemorySource) -> None:
    source.topics.trouble = NoBroker("No broker answers at 127.0.0.1:9")
    assert "send_mail" in console.get("/console/").text
    answer = console.get("/console/topics")
    assert answer.status_code == 503
    assert "No broker answers at 127.0.0.1:9" in answer.text


def test_what_nobody_foresaw_says_nothing_of_its_inside(
    console: WebClient, application: MemoryApplication, caplog: pytest.LogCaptureFixture
) -> None:
    application.generations = None  # type: ignore[assignment]
    answer = console.get("/console/views/sales")
    assert answer.status_code == 500
    assert "NoneType" not in answer.text
    assert "NoneType" in caplog.text


# --- live


def test_a_page_is_also_a_stream_of_its_parts(console: WebClient, source: MemorySource) -> None:
    def change(came: bytes) -> None:
        if b"event: parts" in came:
            source.topics.counts["more"] = 7

    came = console.stream(
        "/console/topics", lambda came: came.count(b"event: parts") > 1, meanwhile=change
    )
    first, second = came.split(b"event: parts")[1:3]
    assert b"live_topics" in first
    assert b"/console/topics/more" not in first
    assert b"/console/topics/more" in second


def test_an_update_that_fails_says_so_and_the_next_one_is_tried(
    console: WebClient, source: MemorySource
) -> None:
    source.topics.trouble = NoBroker("nobody answers")

    def mend(came: bytes) -> None:
        if b"event: trouble" in came:
            source.topics.trouble = None

    came = console.stream("/console/topics", lambda came: b"event: parts" in came, meanwhile=mend)
    assert b"nobody answers" in came


def test_records_come_as_rows_that_are_escaped(console: WebClient, source: MemorySource) -> None:
    source.topics.followed.coming = [[record(4, HOSTILE.encode()), record(5, b"other")]]
    came = console.stream(
        "/console/topics/clicks/tail", lambda came: b"event: rows" in came, q="script"
    )
    assert b"&lt;script&gt;" in came
    assert HOSTILE.encode() not in came
    assert b"other" not in came
    assert source.topics.followed.is_closed


def test_tails_are_opened_up_to_their_limit_and_not_one_more(
    console: WebClient, source: MemorySource
) -> None:
    """None of those that are open waits for another: all of them poll at one time."""
    all_poll = threading.Barrier(TAILS_MAX + 1)
    source.topics.followed = WaitingTail(all_poll)
    may_end = threading.Event()
    path = "/console/topics/clicks/tail"

    def is_enough(came: bytes) -> bool:
        return may_end.is_set() and b"event: rows" in came

    open_ones = [console.stream_beside(path, is_enough) for _ in range(TAILS_MAX)]
    console.meets(all_poll)
    refused = console.get(path)
    assert refused.status_code == 429
    assert f"{TAILS_MAX} tails of topics are open already" in refused.text
    may_end.set()
    for one in open_ones:
        assert b"event: rows" in console.came_of(one)
    source.topics.followed = MemoryTail()
    source.topics.followed.coming = [[record(1)]]
    assert b"event: rows" in console.stream(path, lambda came: b"event: rows" in came)


def test_a_tail_that_cannot_be_opened_takes_no_place(
    console: WebClient, source: MemorySource
) -> None:
    for _ in range(TAILS_MAX + 1):
        assert console.get("/console/topics/none/tail").status_code == 404


def test_a_tail_is_not_closed_while_it_is_polled(console: WebClient, source: MemorySource) -> None:
    """A consumer is for one thread at a time."""
    tail = source.topics.followed = SlowTail()
    tail.coming = [[record(1)]]
    console.stream("/console/topics/clicks/tail", lambda came: tail.is_polled.is_set())
    assert tail.is_closed
    assert not tail.was_closed_in_use


def test_of_a_flood_some_are_shown_and_the_rest_counted(
    console: WebClient, source: MemorySource
) -> None:
    source.topics.followed.coming = [[record(number) for number in range(1_000)]]
    came = console.stream("/console/topics/clicks/tail", lambda came: b"event: rows" in came)
    assert b'"skipped": 960' in came
    assert came.count(b"<tr") == 40


def test_the_feed_of_a_view_begins_now(console: WebClient, application: MemoryApplication) -> None:
    rows = application.opened["sales"].range(limit=1)

    def write(came: bytes) -> None:
        if came.startswith(b":") and b"event" not in came:
            application.kept["sales"].write([rows[0] | {"share": 0.125}])

    came = console.stream(
        "/console/views/sales/tail", lambda came: b"event: rows" in came, meanwhile=write
    )
    assert came.count(b"<tr") == 1
    assert b"0.125" in came
    assert f"{NOW_MS}" not in came.decode()
