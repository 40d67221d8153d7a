"""Asks an HTTP service in this process, one request at a time; streams are cut off when enough."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import httpx

from millstream.web.console.ports import Source
from millstream.web.guard import Admission
from millstream.web.limits import Limits
from millstream.web.service import make_service
from tests.support.web_application import MemoryApplication

HOST = "http://localhost:8080"
WITHIN_S = 30.0

T = TypeVar("T")


class WebClient:
    """`service` lives in one event loop, which runs while a request is asked."""

    def __init__(
        self,
        application: MemoryApplication,
        *,
        limits: Limits | None = None,
        admission: Admission | None = None,
        console: Source | None = None,
        folders: tuple[str, ...] = (),
    ) -> None:
        self.application = application
        self._runner = asyncio.Runner()
        self.service = self._runner.run(self._made(limits, admission, console, folders))

    async def _made(
        self,
        limits: Limits | None,
        admission: Admission | None,
        console: Source | None,
        folders: tuple[str, ...],
    ) -> Any:
        return make_service(
            self.application, limits=limits, admission=admission, console=console, folders=folders
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.service.watch is not None:
            self.service.watch.stop()
        self._runner.close()

    def get(self, path: str, headers: Any = None, **query: Any) -> httpx.Response:
        return self.ask("GET", _with_query(path, query), headers=headers)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.ask("POST", path, **given)

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        return self._runner.run(_within_limit(self._ask(method, path, given)))

    def ask_beside(self, method: str, path: str, **given: Any) -> "asyncio.Task[httpx.Response]":
        """Begun, and under way while others are asked."""
        return self._runner.get_loop().create_task(self._ask(method, path, given))

    def answer_of(self, asked: "asyncio.Task[httpx.Response]") -> httpx.Response:
        return self._runner.run(_within_limit(asked))

    def waits_for(self, told: threading.Event | threading.Semaphore) -> bool:
        """While the service runs on, until a thread of it has told."""
        wait = told.wait if isinstance(told, threading.Event) else told.acquire
        return self._runner.run(asyncio.to_thread(wait, timeout=WITHIN_S))

    def meets(self, all_there: threading.Barrier) -> None:
        """While the service runs on, until as many threads of it have come."""
        self._runner.run(asyncio.to_thread(all_there.wait, timeout=WITHIN_S))

    async def _ask(self, method: str, path: str, given: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.service.asgi, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            return await client.request(method, path, timeout=WITHIN_S, **given)

    def stream(
        self, path: str, until: Callable[[bytes], bool], *, meanwhile: Any = None, **query: Any
    ) -> bytes:
        """What came by the time that it was enough; then the client hangs up."""
        return self._runner.run(self._stream(_with_query(path, query), until, meanwhile))

    def stream_beside(
        self, path: str, until: Callable[[bytes], bool], **query: Any
    ) -> "asyncio.Task[bytes]":
        """Begun, and open while others are asked."""
        asked = self._stream(_with_query(path, query), until, None)
        return self._runner.get_loop().create_task(asked)

    def came_of(self, asked: "asyncio.Task[bytes]") -> bytes:
        return self._runner.run(_within_limit(asked))

    async def _stream(self, path: str, until: Callable[[bytes], bool], meanwhile: Any) -> bytes:
        came = bytearray()
        is_enough = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await is_enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            came.extend(message.get("body", b""))
            if meanwhile is not None:
                await asyncio.to_thread(meanwhile, bytes(came))
            if until(bytes(came)):
                is_enough.set()

        async with asyncio.timeout(WITHIN_S):
            await self.service.asgi(_stream_scope(path), receive, send)
        return bytes(came)


async def _within_limit(asked: Awaitable[T]) -> T:
    async with asyncio.timeout(WITHIN_S):
        return await asked


def problem(answer: httpx.Response) -> tuple[str, int]:
    """Its kind, and its status, which is the answer's."""
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert set(found) - {"id"} == {"type", "title", "status", "detail", "what_to_do"}
    assert found["status"] == answer.status_code
    return found["type"].removeprefix("urn:millstream:problem:"), answer.status_code


def _with_query(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def _stream_scope(path: str) -> dict[str, Any]:
    url = httpx.URL(HOST + path)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},  # uvicorn's
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "headers": [(b"host", b"localhost:8080"), (b"accept", b"text/event-stream")],
    }
