"""`View`: what an application reads a view with, wherever it is kept.

    view = app.view("clicks_per_url")
    view.get("/home", after=app.publish("clicks", {...}))    reads its own write
    view.range(("2026-07-01",), ("2026-07-31",))
    view.scan(where={"count >=": 5}, order_by="-count", limit=10)
    view.sql("SELECT url, count FROM clicks_per_url WHERE count > ?", [5])

Every call sees the view as of one batch of its job. What a store has no answer to is told as
NotInThisStore. Writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.base.closing import Closing
from millstream.base.ports import Positions
from millstream.base.schema import Schema
from millstream.base.tracing import span
from millstream.views.feed_tokens import Place, tokens_of
from millstream.views.feeds import AsyncSubscription, Feed, Slow, Subscription, Wish
from millstream.views.sql import Parameters, answer_arrow, answer_rows
from millstream.views.store import BadQuestion, NotInThisStore, Row, ViewReads
from millstream.views.waiting import WAIT_SECONDS, After, Fresh, wanted_positions

if TYPE_CHECKING:
    import pyarrow as pa

Found = TypeVar("Found")


def _job_unknown() -> str:
    return "Is its job running, and keeping up?"


class View(Closing):
    """A view to read. Thread-safe; close it when you are done.

    `after`, on every question, is what `app.publish` returned, or a list of it: the answer is of
    a moment when the view has passed these records, or NotFreshYet is raised after `timeout`
    seconds.
    """

    def __init__(
        self,
        name: str,
        reads: ViewReads,
        *,
        place: str = "",
        job: Callable[[], str] = _job_unknown,
    ) -> None:
        """`job` says in a sentence how the view's job is, for who waits for it in vain."""
        self.name, self.place = name, place
        self._reads, self._job = reads, job

    def __repr__(self) -> str:
        return f"<View {self.name}{f' in {self.place}' if self.place else ''}>"

    # --- questions

    def get(self, *key: Any, after: After = None, timeout: float = WAIT_SECONDS) -> Row | None:
        """The row of this key, or None. A key of several columns: one value each, or a mapping."""
        return self.get_many([key], after=after, timeout=timeout)[0]

    def get_many(
        self, keys: Sequence[Any], *, after: After = None, timeout: float = WAIT_SECONDS
    ) -> list[Row | None]:
        """The rows of these keys, all as of one moment; None where there is none.

        A key of several columns is a tuple or a mapping.
        """
        return self._ask(lambda now: now.get_many(keys), after, timeout)

    def range(
        self,
        first: Any = None,
        last: Any = None,
        *,
        limit: int | None = None,
        after: After = None,
        timeout: float = WAIT_SECONDS,
    ) -> list[Row]:
        """Rows by key from `first` to `last`, both included; None is no bound.

        A tuple may name the first parts of a key only.
        """
        return self._ask(lambda now: now.range(first, last, limit=limit), after, timeout)

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
        after: After = None,
        timeout: float = WAIT_SECONDS,
    ) -> list[Row]:
        """Rows that meet all conditions: {"url": "/", "count >=": 5, "user in": ["ada", "bob"]}.

        The operators: = (or none), !=, <, <=, >, >=, in, starts with. `order_by` names columns,
        "-count" the greatest first; without it rows come by key.
        """

        def question(now: ViewReads) -> list[Row]:
            return now.scan(where=where, order_by=order_by, limit=limit)

        return self._ask(question, after, timeout)

    def count(self, *, after: After = None, timeout: float = WAIT_SECONDS) -> int:
        return self._ask(lambda now: now.count(), after, timeout)

    def position(self) -> Positions:
        """Where the job has read to, in this view: the next offset by topic and partition."""
        return self._reads.position()

    @property
    def schema(self) -> Schema:
        return self._reads.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._reads.key

    # --- SQL

    def sql(
        self,
        text: str,
        params: Parameters = (),
        *,
        after: After = None,
        timeout: float = WAIT_SECONDS,
    ) -> list[Row]:
        """One SELECT over this view, a table of its name; each ? (or $name) is a parameter.

        In the store's own SQL where it has one, else in DuckDB's.
        """

        def question(now: ViewReads) -> list[Row]:
            own: Any = getattr(now, "sql", None) or getattr(self._reads, "sql", None)
            if own is None:
                return answer_rows(text, params, {self.name: arrow_of(now)})
            rows: list[Row] = own(text, params)
            return rows

        return self._ask(question, after, timeout)

    def sql_arrow(
        self,
        text: str,
        params: Parameters = (),
        *,
        after: After = None,
        timeout: float = WAIT_SECONDS,
    ) -> "pa.Table":
        """The answer of `sql` as a table of Arrow; always DuckDB's."""

        def question(now: ViewReads) -> "pa.Table":
            return answer_arrow(text, params, {self.name: arrow_of(now)})

        return self._ask(question, after, timeout)

    def arrow(self, *, after: After = None, timeout: float = WAIT_SECONDS) -> "pa.Table":
        """All rows as a table of Arrow."""
        return self._ask(arrow_of, after, timeout)

    # --- what only some stores have

    def as_of(self, moment: int | datetime) -> "View":
        """The view as it was: at a version of it, or at a time."""
        read: Any = self._own("as_of", question="past", instead="keep it in SQLite, with history=")
        if isinstance(moment, bool) or not isinstance(moment, int | datetime):
            raise BadQuestion(f"as_of({moment!r}): a version's number, or a datetime")
        past = read(time=moment) if isinstance(moment, datetime) else read(version=moment)
        return View(self.name, past, place=f"{self.place}, as of {moment}", job=self._job)

    def subscribe(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        since: str | None = None,
        slow: Slow = "buffer",
        buffer_max: int | None = None,
        heartbeat: float | None = None,
        timeout: float | None = None,
    ) -> Subscription:
        """The rows that meet `where`, then every change of them: see docs/guides/feeds.md.

        `since` is the token of a change, to go on after it. Times are in seconds.
        """
        wish = Wish(where=where, since=since, slow=slow, buffer_max=buffer_max)
        return self._feed().subscribe(wish, heartbeat=heartbeat, timeout=timeout)

    def subscribe_async(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        since: str | None = None,
        slow: Slow = "buffer",
        buffer_max: int | None = None,
        heartbeat: float | None = None,
        timeout: float | None = None,
    ) -> AsyncSubscription:
        """The same for `async for`, in a running event loop."""
        wish = Wish(where=where, since=since, slow=slow, buffer_max=buffer_max)
        return self._feed().subscribe_async(wish, heartbeat=heartbeat, timeout=timeout)

    def token(self, *, where: Mapping[str, Any] | None = None) -> str | None:
        """Of the view as it is now: `subscribe(since=...)` then gives only what comes after.

        None if the view is not there yet.
        """
        tail = self._feed().source.tail()
        if tail is None:
            return None
        return tokens_of(self.name, where).write(Place(tail.timeline, tail.seq))

    def _feed(self) -> Feed:
        own: Any = self._own("feed", question="change feed", instead="keep it in SQLite")
        feed: Feed = own()
        return feed

    def search(self, query: str, *, limit: int = 10, **terms: Any) -> list[Row]:
        """The rows that match a query of words best, each with a `_score`."""
        search: Any = self._own(
            "search", question="full-text search", instead="keep it in stores.SearchIndex"
        )
        rows: list[Row] = search(query, limit=limit, **terms)
        return rows

    def _own(self, name: str, *, question: str, instead: str) -> Any:
        found = getattr(self._reads, name, None)
        if found is None:
            store = self.place or "a store"
            raise NotInThisStore(view=self.name, store=store, question=question, instead=instead)
        return found

    # --- how it is asked, and the end

    def _ask(self, question: Callable[[ViewReads], Found], after: After, timeout: float) -> Found:
        wanted = wanted_positions(after)
        if not wanted:
            return question(self._reads)
        fresh = Fresh(self.name, self._reads, job=self._job)
        with span(f"read {self.name} after a write"):
            return fresh.ask(question, wanted=wanted, timeout=timeout)

    def close(self) -> None:
        self._reads.close()


def arrow_of(reads: ViewReads) -> "pa.Table":
    """All rows in Arrow, from a store that gives them so, or from any."""
    own: Any = getattr(reads, "arrow", None)
    if own is not None:
        return own()
    import pyarrow as pa

    from millstream.schemas.arrow_types import nullable_arrow_schema

    return pa.Table.from_pylist(reads.scan(), nullable_arrow_schema(reads.schema))
