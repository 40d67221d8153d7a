"""One view in a Redis server: the names of its keys, its notes, and the one way to change it.

The notes are a hash of texts: `view` (who writes it, which generations there are), `served`, and
of each generation `layout:<n>` (key and columns) and `generation:<n>` (the last batch). Who
changes something says what it has seen: if that is so no more, nothing is done (`Step`). Redis's
errors become ours here.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.views.stores.redis import scripts
from millstream.views.view_book import (
    GenerationState,
    ViewBook,
    book_from,
    state_from,
    to_json,
)

FORMAT = "1"
VIEW, SERVED = "view", "served"
# A script that applies a large batch holds all others up.
ANSWER_SECONDS_MAX = 120.0
CONNECT_SECONDS_MAX = 10.0
# With pauses of 50 ms, doubled each time up to 1 s.
ATTEMPTS_MAX = 6
# What a run that was killed has staged goes by itself.
STAGED_SECONDS_MAX = 3600
ENTRIES_AT_ONCE = 3 * 2_000

FULL = re.compile(r"\b(OOM|MISCONF)\b")
NOT_READY = re.compile(r"\b(BUSY|LOADING|READONLY|MASTERDOWN|TRYAGAIN)\b")

Entry = tuple[bytes, bytes, bytes]  # a key's text, its member of the index, its row; b"" is none


class RedisNotReached(Retryable):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: the server does not answer, or not yet ({problem}). Try again")
        self.place, self.problem = place, problem


class RedisFull(Retryable):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(
            f"{place}: the server takes nothing more ({problem}). Give it memory or disk; nothing "
            "of the batch was written, and writing goes on by itself"
        )
        self.place, self.problem = place, problem


class RedisRefused(Rejected):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: the server refuses it ({problem})")
        self.place, self.problem = place, problem


class NotesUnreadable(Corrupt):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(
            f"{place}: not what a view's notes are ({problem}). Drop the view there, and rebuild it"
        )
        self.place, self.problem = place, problem


class RedisMissing(Rejected):
    def __init__(self) -> None:
        super().__init__("redis is not installed: run `pip install 'millstream[redis]'`")


@dataclass(frozen=True)
class Notes:
    """What the notes of a view said at one moment."""

    place: str
    fields: Mapping[str, str]

    @cached_property
    def book(self) -> ViewBook:
        text = self.fields.get(VIEW)
        return ViewBook() if text is None else book_from(self._facts(VIEW))

    def state(self, generation: int) -> GenerationState | None:
        if layout_field(generation) not in self.fields:
            return None
        return state_from(
            self._facts(layout_field(generation)) | self._facts(batch_field(generation))
        )

    def _facts(self, name: str) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(self.fields[name])
        except (KeyError, ValueError) as error:
            raise NotesUnreadable(place=self.place, problem=f"{name}: {error}") from None
        return facts

    def seen(self, *names: str) -> dict[str, str]:
        return {name: self.fields.get(name, "") for name in names}


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is done at once, if the fields that it expects are as they were."""

    expect: Mapping[str, str]
    put: Mapping[str, str] = field(default_factory=dict)
    remove: Sequence[str] = ()
    unlink: Sequence[str] = ()
    into: int = 0
    staged_by: int = 0
    staged: int = 0


class RedisLink:
    """Thread-safe; connects when it is first used."""

    def __init__(self, url: str, *, prefix: str, view: str) -> None:
        self._url, self.name = url, f"{prefix}:{view}"
        self.place = f"{shown_address(url)}, key {self.name}"

    def rows(self, generation: int) -> str:
        return f"{self.name}:{generation}:rows"

    def index(self, generation: int) -> str:
        return f"{self.name}:{generation}:index"

    def staged(self, generation: int, epoch: int) -> str:
        return f"{self.name}:{generation}:staged:{epoch}"

    def notes(self) -> Notes:
        with self._translated():
            found = self._client.hgetall(self.name)
        fields = {name.decode(): text.decode() for name, text in found.items()}
        if fields and fields.get("format") != FORMAT:
            problem = f"format {fields.get('format')}, this version reads {FORMAT}"
            raise NotesUnreadable(place=self.place, problem=problem)
        return Notes(self.place, fields)

    def stage(self, entries: Iterable[Entry], *, generation: int, epoch: int) -> int:
        """Hand over what a step will apply; how many texts that is."""
        name, staged = self.staged(generation, epoch), 0
        texts = (text for entry in entries for text in entry)
        with self._translated():
            self._client.unlink(name)
            while some := list(islice(texts, ENTRIES_AT_ONCE)):
                staged = self._client.rpush(name, *some)
                self._client.expire(name, STAGED_SECONDS_MAX)
        return staged

    def change(self, step: Step) -> bool:
        """False if something has changed since the writer looked."""
        into = (self.rows(step.into), self.index(step.into))
        keys = [self.name, self.staged(step.into, step.staged_by), *into, *step.unlink]
        asked = {
            "expect": step.expect,
            "put": step.put,
            "remove": list(step.remove),
            "staged": step.staged,
        }
        with self._translated():
            return bool(self._scripts[scripts.CHANGE](keys=keys, args=[to_json(asked)]))

    def ask(self, script: str, *arguments: bytes | str) -> list[Any]:
        with self._translated():
            found: list[Any] = self._scripts[script](keys=[self.name], args=arguments)
            return found

    def close(self) -> None:
        client = self.__dict__.pop("_client", None)
        self.__dict__.pop("_scripts", None)
        if client is not None:
            client.close()

    @cached_property
    def _client(self) -> Any:
        return connected(self._url)

    @cached_property
    def _scripts(self) -> dict[str, Any]:
        return {
            text: self._client.register_script(text)
            for text in (scripts.CHANGE, scripts.NOTES, scripts.GET, scripts.RANGE)
        }

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        redis = library()
        try:
            yield
        except redis.exceptions.RedisError as error:
            raise error_from(error, self.place) from error


def library() -> Any:
    """The client, untyped: its answers are those of both its faces, the awaited one too."""
    try:
        import redis
    except ImportError:
        raise RedisMissing from None
    return redis


def connected(url: str) -> Any:
    redis = library()
    from redis.backoff import ExponentialBackoff
    from redis.retry import Retry

    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=ANSWER_SECONDS_MAX,
            socket_connect_timeout=CONNECT_SECONDS_MAX,
            retry=Retry(ExponentialBackoff(cap=1.0, base=0.05), ATTEMPTS_MAX - 1),
        )
    except ValueError as error:
        problem = f"{error}: such as redis://127.0.0.1:6379/0"
        raise RedisRefused(place=shown_address(url), problem=problem) from None


def error_from(error: Exception, place: str) -> Exception:
    """By the word in Redis's message, which the client takes off where it has a class for it."""
    kinds, problem = library().exceptions, str(error)
    if isinstance(error, kinds.OutOfMemoryError) or FULL.search(problem):
        return RedisFull(place=place, problem=problem)
    if isinstance(error, kinds.AuthenticationError):  # a ConnectionError too
        return RedisRefused(place=place, problem=problem)
    away = (kinds.ConnectionError, kinds.TimeoutError, kinds.ReadOnlyError, kinds.TryAgainError)
    if isinstance(error, away) or NOT_READY.search(problem):
        return RedisNotReached(place=place, problem=problem)
    return RedisRefused(place=place, problem=problem)


def shown_address(url: str) -> str:
    """Without the password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def layout_field(generation: int) -> str:
    return f"layout:{generation}"


def batch_field(generation: int) -> str:
    return f"generation:{generation}"
