"""The console in a real browser, before a shop in motion: a broker, a capture, views, a queue.

Jobs are not run here: what Spark would write is written by hand (tests/support/console_shop.py).
"""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from millstream.base.clock import system_clock
from millstream.embedded import Broker
from millstream.processing.jobs.lag import Lag
from millstream.web.server import Listening, server_beside
from millstream.web.service import make_service
from tests.support.browser import (
    PHONE,
    WITHIN_MS,
    Scheme,
    browser,
    faults_of,
    scrolls_sideways,
    visited,
)
from tests.support.console_shop import Shop, shop_in_motion
from tests.support.console_source import MemorySource
from tests.support.many_topics import make_many_topics, memory_directory, partitions_possible
from tests.support.serve_process import ServeProcess
from tests.support.web_application import MemoryApplication, sales_view

pytestmark = pytest.mark.full

TOKEN = "a-token-of-the-console-tests"
PAGES = (
    "",
    "topics",
    "topics/clicks",
    "topics/clicks/0/0",
    "groups",
    "groups/billing",
    "captures",
    "captures/shopdb",
    "jobs",
    "jobs/clicks_per_url",
    "jobs/enriched_orders",
    "jobs/revenue_per_minute",
    "jobs/paid",
    "jobs/receipts_by_mail",
    "views",
    "views/clicks_per_url",
    "views/clicks_per_url/row?key=%5B%22%2Fhelp%22%5D",
    "views/enriched_orders",
    "queues",
    "queues/restock",
    "aggregates",
)
MANY_TOPICS, MANY_PARTITIONS = 10_000, 1_000
# A page is usable when it is there before one wonders whether it comes: on a busy machine, too.
USABLE_S = 10.0


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_in_motion(tmp_path_factory.mktemp("shop"), captures=True) as found:
        yield found


@pytest.fixture(scope="module")
def console(shop: Shop) -> Iterator[str]:
    """On loopback, without a token."""
    with ServeProcess(shop.file, env=shop.env) as process:
        yield process.url
        assert process.stop() == 0


@pytest.fixture(scope="module")
def guarded(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("token") / "http.token"
    file.touch(mode=0o600)
    file.write_text(f"{TOKEN}\n")
    options = ("--token-file", str(file))
    with ServeProcess(shop.file, env=shop.env, options=options) as process:
        yield process.url


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def page(chromium: Browser, console: str) -> Iterator[Page]:
    with visited(chromium, console) as found:
        yield found


@pytest.fixture
def writer(chromium: Browser, guarded: str) -> Iterator[Page]:
    """Signed in by the address that `millstream` may open: the token is behind its #."""
    with visited(chromium, guarded, expected="status of 422") as found:
        found.goto(f"/console/sign-in?next=%2Fconsole%2Fjobs#{TOKEN}")
        found.wait_for_url("**/console/jobs")
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_complains_or_shuts_anybody_out(
    chromium: Browser, console: str, scheme: Scheme
) -> None:
    faults = {}
    with visited(chromium, console, scheme=scheme) as page:
        for path in PAGES:
            answer = page.goto(f"/console/{path}")
            assert answer is not None
            assert answer.status == 200, path
            faults[path] = faults_of(page)
    assert {path: found for path, found in faults.items() if found} == {}


def test_on_a_phone_nothing_scrolls_sideways(chromium: Browser, console: str) -> None:
    with visited(chromium, console, size=PHONE) as page:
        wide = []
        for path in PAGES:
            page.goto(f"/console/{path}")
            if scrolls_sideways(page):
                wide.append(path)
        assert wide == []


# How the shop's jobs are (tests/support/console_shop.py), and the views that they keep.
WORDS = {
    "job clicks_per_url": "good",
    "job enriched_orders": "behind",
    "job revenue_per_minute": "stopped",
    "job paid": "failed",
    "job receipts_by_mail": "failed",
    "view clicks_per_url": "good",
    "view enriched_orders": "behind",
    "view revenue_per_minute": "stopped",
    "capture shopdb": "good",
}
COLOURS = "(one) => { const s = getComputedStyle(one); return s.color + s.backgroundColor; }"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_how_jobs_are_is_told_by_word_colour_and_shape(
    chromium: Browser, console: str, scheme: Scheme
) -> None:
    with visited(chromium, console, scheme=scheme) as page:
        page.goto("/console/jobs")
        badges = {
            job: page.locator(f'.condition[data-of="job {job}"]')
            for job in ("clicks_per_url", "enriched_orders", "revenue_per_minute", "paid")
        }
        words = {job: badge.inner_text() for job, badge in badges.items()}
        assert words == {job: WORDS[f"job {job}"] for job in badges}
        assert len({badge.evaluate(COLOURS) for badge in badges.values()}) == 4
        assert len({badge.locator("svg").inner_html() for badge in badges.values()}) == 4
        page.goto("/console/")
        boxes = [page.locator(f'.box[data-of="job {job}"]') for job in badges]
        assert [box.get_attribute("data-word") for box in boxes] == list(words.values())
        assert len({box.locator(".condition").evaluate(COLOURS) for box in boxes}) == 4
        assert len({box.locator(".mark").inner_html() for box in boxes}) == 4


def test_no_two_places_of_the_console_disagree(page: Page) -> None:
    """Nor do those that are renewed while somebody looks."""
    said: dict[str, set[str]] = {}
    for path in PAGES:
        page.goto(f"/console/{path}")
        for one in page.locator("[data-of]").all():
            of, word = one.get_attribute("data-of"), one.get_attribute("data-word")
            said.setdefault(of or "", set()).add(word or (one.text_content() or "").strip())
    assert {of: said[of] for of in WORDS} == {of: {word} for of, word in WORDS.items()}
    assert [of for of, words in said.items() if len(words) > 1 and not of.startswith("group")] == []
    page.goto("/console/")
    rate = page.locator("#live_totals dd").first
    before = rate.inner_text()
    expect(rate).not_to_have_text(before, timeout=WITHIN_MS)
    for of, word in WORDS.items():
        for one in page.locator(f'.condition[data-of="{of}"]').all():
            assert one.text_content() == word


def test_a_stopped_job_says_how_much_has_come_since(page: Page) -> None:
    page.goto("/console/jobs/revenue_per_minute")
    behind = page.locator("#live_job dd").nth(1)
    before = behind.inner_text()
    assert re.search(r"s current to \d\d:\d\d:\d\d UTC", before)
    expect(behind).not_to_have_text(before, timeout=WITHIN_MS)
    expect(page.get_by_text(re.compile(r"payments [\d,]+ records behind"))).to_be_visible()


def test_the_first_page_has_figures_without_scripts(chromium: Browser, shop: Shop) -> None:
    """Of a server that nobody has looked at."""
    with ServeProcess(shop.file, env=shop.env) as process:
        context = chromium.new_context(base_url=process.url, java_script_enabled=False)
        page = context.new_page()
        page.goto("/console/", timeout=WITHIN_MS)
        totals = page.locator("#live_totals dd").all_inner_texts()
        boxes = page.locator(".box.topic .figure").all_text_contents()
        context.close()
        process.stop()
    assert "–" not in totals
    assert re.fullmatch(r"[\d.,]+k?/s", totals[0])
    assert totals[0] != "0/s"
    assert [one for one in boxes if not one.endswith("/s")] == []


def test_a_row_opens_in_full_and_a_count_leads_to_its_letters(
    chromium: Browser, console: str
) -> None:
    """Without scripts, too."""
    context = chromium.new_context(base_url=console, java_script_enabled=False)
    page = context.new_page()
    page.goto("/console/views/clicks_per_url", timeout=WITHIN_MS)
    page.get_by_role("link", name="/search?q=tea").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("/search?q=tea")
    assert page.locator("dt").all_inner_texts() == ["url STRING", "count BIGINT"]
    page.goto("/console/jobs")
    page.locator("tr", has_text="clicks_per_url").get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("clicks.dead")
    context.close()


def test_names_are_whole_where_there_is_room(page: Page) -> None:
    page.goto("/console/")
    names = set(page.locator(".picture .name").all_text_contents())
    assert {"revenue_per_minute", "shopdb.customers"} <= names
    page.goto("/console/topics/clicks")
    cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length"
    assert page.locator(".records td").evaluate_all(cut) == 0


def test_figures_move_and_can_be_told_to_rest(page: Page) -> None:
    page.goto("/console/topics/clicks")
    records = page.locator("#live_facts dd").nth(1)
    before = records.inner_text()
    expect(records).not_to_have_text(before, timeout=WITHIN_MS)
    rate = page.locator("#live_facts dd").first
    expect(rate).to_have_text(re.compile(r"^[\d.,]+k?/s$"), timeout=WITHIN_MS)
    pause = page.get_by_role("button", name="Pause live updates")
    pause.click()
    expect(pause).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(pause).to_have_attribute("aria-pressed", "true")
    rested = records.inner_text()
    page.wait_for_timeout(2_500)
    assert records.inner_text() == rested


def test_an_update_leaves_the_focus_where_it_is(page: Page) -> None:
    page.goto("/console/topics")
    link = page.get_by_role("link", name="clicks", exact=True)
    link.focus()
    cell = page.locator("tr", has=link).locator("td").nth(1)
    before = cell.inner_text()
    expect(cell).not_to_have_text(before, timeout=WITHIN_MS)
    expect(link).to_be_focused()


def test_the_flow_is_drawn_and_moves(page: Page) -> None:
    page.goto("/console/")
    names = page.locator(".picture .name").all_text_contents()
    assert {"shopdb", "clicks", "clicks_per_url", "paid", "send_mail"} <= set(names)
    expect(page.locator(".picture .moves").first).to_be_attached(timeout=WITHIN_MS)
    expect(page.get_by_text("send_mail raised")).to_be_visible()


def test_every_link_of_the_keyboard_is_reached(page: Page) -> None:
    page.goto("/console/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_a_tail_follows_what_matches(page: Page, shop: Shop) -> None:
    page.goto("/console/topics/clicks")
    page.get_by_label("Has the text").fill("pricing")
    page.get_by_role("button", name="Show").click()
    follow = page.get_by_role("button", name="Follow live")
    follow.click()
    expect(page.locator(".told")).to_have_text(re.compile(r"^\d+ came"), timeout=WITHIN_MS)
    values = page.locator(".records .value").all_inner_texts()
    assert values
    assert all("pricing" in one for one in values)
    page.get_by_role("button", name="Following: stop").click()


def test_a_record_is_shown_in_full(page: Page) -> None:
    page.goto("/console/topics/clicks")
    page.locator(".records a").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Partition \d, offset"))
    assert '"user": "' in page.get_by_label("Value").locator("pre").inner_text()


def test_without_a_token_nothing_can_be_changed(page: Page) -> None:
    page.goto("/console/topics/searches")
    expect(page.get_by_text("This console is read-only").first).to_be_visible()
    assert page.locator("form[method=post]").count() == 0


def test_a_record_is_produced(writer: Page) -> None:
    text = f'<b>hello</b> "{time.monotonic_ns()}"'
    writer.goto("/console/topics/searches")
    writer.get_by_label("Key").fill("ada")
    writer.get_by_label("Value", exact=True).fill(text)
    writer.get_by_role("button", name="Produce").click()
    writer.get_by_role("status").get_by_role("link").click()
    assert writer.get_by_label("Value").locator("pre").inner_text() == text


def test_a_row_that_does_not_fit_is_refused_with_its_reason(writer: Page) -> None:
    writer.goto("/console/topics/payments")
    writer.locator("textarea").fill('{"order_id": "many"}')
    writer.get_by_role("button", name="Produce").click()
    expect(writer.locator(".fault")).to_contain_text("order_id")


def test_dead_letters_are_put_back(writer: Page) -> None:
    writer.goto("/console/queues/restock")
    letters = writer.locator("input[name=id]")
    before = letters.count()
    assert before >= 2
    letters.first.check()
    writer.get_by_role("button", name="Put the chosen back").click()
    expect(writer.get_by_text("Put back: 1 letter.")).to_be_visible()
    expect(letters).to_have_count(before - 1)
    writer.get_by_role("button", name=re.compile("Put all")).click()
    expect(writer.get_by_text(f"Put back: {before - 1} letter")).to_be_visible()
    expect(letters).to_have_count(0)


def test_a_view_is_searched_and_its_changes_come(page: Page) -> None:
    page.goto("/console/views/clicks_per_url")
    page.locator("select[name=column]").select_option("url")
    page.locator("select[name=operator]").select_option("starts with")
    page.locator("input[name=value]").fill("/p")
    page.get_by_role("button", name="Find").click()
    assert page.locator(".rows tbody tr").count() == 1
    page.get_by_role("button", name="Follow live").click()
    changes = page.locator(".changes tbody tr")
    expect(changes.nth(1)).to_be_visible(timeout=WITHIN_MS)
    assert {"upsert"} == {row.split()[0] for row in changes.all_inner_texts()}
    assert all("/pricing" in row for row in changes.all_inner_texts())


def test_signing_out_ends_it(chromium: Browser, guarded: str) -> None:
    with visited(chromium, guarded) as page:
        page.goto("/console/")
        assert faults_of(page) == []
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/console/")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/console/sign-in")
        page.goto("/console/jobs")
        expect(page.get_by_label("Token")).to_be_visible()


def test_pages_work_without_scripts(chromium: Browser, console: str) -> None:
    context = chromium.new_context(base_url=console, java_script_enabled=False)
    page = context.new_page()
    page.goto("/console/topics/clicks?q=basket", timeout=WITHIN_MS)
    assert page.locator(".records tbody tr").count() > 0
    context.close()


@pytest.mark.timeout(900)
def test_a_broker_of_many_topics_and_a_thousand_partitions_stays_usable(
    chromium: Browser, tmp_path: Path
) -> None:
    """As many as there may be files open: with `ulimit -n 40000` it is ten thousand."""
    topics = partitions_possible(MANY_TOPICS + MANY_PARTITIONS) - MANY_PARTITIONS
    file = tmp_path / "app.py"
    file.write_text("import millstream as ms\napp = ms.App('many')\n")
    with memory_directory() as data, Broker(data) as broker:
        make_many_topics(broker.bootstrap, topics=topics, partitions=MANY_PARTITIONS)
        env = {"MILLSTREAM_BROKERS": broker.bootstrap}
        with ServeProcess(file, env=env) as process, visited(chromium, process.url) as page:
            look_through(page, topics=topics + 1, wide="wide")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[tuple[str, MemorySource]]:
    """A console in this process, of a broker of memory, and where it listens."""
    source, application = MemorySource(), MemoryApplication(sales_view(tmp_path))
    listening = Listening(host="127.0.0.1", port=0)
    try:
        with server_beside(lambda: make_service(application, console=source), listening) as url:
            yield url, source
    finally:
        application.close()


def test_ten_thousand_topics_and_a_thousand_partitions_stay_usable(
    chromium: Browser, memory: tuple[str, MemorySource]
) -> None:
    """All that the console itself does with them, in a browser."""
    url, source = memory
    source.topics.counts = {f"topic-{number:05}": 1 for number in range(MANY_TOPICS - 1)}
    source.topics.counts["wide"] = MANY_PARTITIONS
    with visited(chromium, url) as page:
        look_through(page, topics=MANY_TOPICS, wide="wide")


def test_long_words_of_a_job_fit_on_a_phone(
    chromium: Browser, memory: tuple[str, MemorySource]
) -> None:
    url, source = memory
    source.declared.progress = replace(
        source.declared.progress,
        state="waiting",
        failures=2,
        retry_at_ms=system_clock() + 20_000,
        error=200 * "x",
    )
    source.declared.measured = Lag(records={"clicks": 123_456}, ms={"clicks": 400_000_000})
    with visited(chromium, url, size=PHONE) as page:
        for path in ("", "jobs", "jobs/sales", "views", "views/sales"):
            page.goto(f"/console/{path}")
            assert not scrolls_sideways(page), path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_aggregate_is_looked_at_as_of_any_version(
    chromium: Browser, memory: tuple[str, MemorySource], scheme: Scheme
) -> None:
    with visited(chromium, memory[0], scheme=scheme, size=PHONE) as page:
        for path in ("aggregates", "aggregates/Stock", "aggregates/Stock/tea"):
            page.goto(f"/console/{path}")
            assert faults_of(page) == []
            assert not scrolls_sideways(page)
        page.get_by_role("link", name="1", exact=True).click()
        expect(page.locator("pre")).to_have_text('{\n  "left": 10\n}')


def look_through(page: Page, *, topics: int, wide: str) -> None:
    """Each page is there soon, and has what one came for."""
    pages = -(-topics // 50)
    for path, shown in (
        ("topics", f"{topics:,} topics, page 1 of {pages}"),
        (f"topics?page={pages - 20}", f"page {pages - 20} of {pages}"),
        ("topics?q=04242", "1 topic"),
        (f"topics/{wide}", f"{MANY_PARTITIONS:,} partitions, page 1 of 20"),
        (f"topics/{wide}?page=20", "page 20 of 20"),
        ("", "Overview"),
    ):
        began = time.monotonic()
        page.goto(f"/console/{path}")
        expect(page.locator("main")).to_contain_text(shown)
        took = time.monotonic() - began
        print(f"of {topics:,} topics /console/{path}: {took:.2f} s")
        assert took < USABLE_S, f"{path}: {took:.1f} s"
