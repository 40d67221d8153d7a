"""Topics: which there are, and rows into them."""

import os
import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millstream.base.declared import DeclaredTable
from millstream.base.record import Record
from millstream.queues.outbox import Receipt
from millstream.web.key_journal import RequestPrinter
from millstream.web.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from millstream.web.ports import Application, Declared
from millstream.web.problems import Problem
from millstream.web.questions import Asked
from millstream.web.sent_rows import documents_in, rows_for
from millstream.web.serving import Serving, answer, json_body
from millstream.web.view_facts import columns_of

IDEMPOTENCY_KEY = "idempotency-key"
# Of this process: nothing on disk tells what a request had in it.
PRINTER = RequestPrinter(os.urandom(32))
PLAIN_KEY = re.compile(f"[!-~]{{1,{IDEMPOTENCY_KEY_CHARACTERS_MAX}}}")


async def list_topics(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    topics = serving.application.topics()
    return answer({"topics": [_facts(topics[name]) for name in sorted(topics)]})


def _facts(declared: Declared) -> dict[str, Any]:
    return {
        "name": declared.name,
        "is_table": isinstance(declared, DeclaredTable),
        "key": list(declared.key),
        "encoding": declared.encoding,
        "columns": None if declared.schema is None else columns_of(declared.schema),
    }


async def publish(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    declared = serving.topic(request.path_params["topic"])
    key = _idempotency_key(request)
    body = await json_body(request, serving.limits)

    def taken() -> list[Record]:
        documents, _ = documents_in(body, rows_max=serving.limits.rows_max)
        return serving.application.records(declared.name, rows_for(declared, documents))

    records = await serving.calls.take_rows(taken, body_bytes=len(body))
    receipts = await serving.calls.ask_broker(
        lambda: _published(serving.application, declared.name, records, key, PRINTER.print_of(body))
    )
    return answer(
        {
            "receipts": [
                {"topic": one.topic, "partition": one.partition, "offset": one.offset}
                for one in receipts
            ],
            "after": after_of(receipts),
        },
        status=201,
    )


def _published(
    application: Application, topic: str, records: list[Record], key: str | None, request: str
) -> list[Receipt]:
    if key is None:
        return application.publish(topic, records)
    return application.publish_once(key, request, topic, records)


def after_of(receipts: Sequence[Receipt]) -> str:
    """What to give as `after=` to a view: the last offset of each partition."""
    last: dict[tuple[str, int], int] = {}
    for one in receipts:
        place = (one.topic, one.partition)
        last[place] = max(one.offset, last.get(place, -1))
    return ",".join(f"{topic}:{partition}:{last[topic, partition]}" for topic, partition in last)


def _idempotency_key(request: Request) -> str | None:
    given = request.headers.getlist(IDEMPOTENCY_KEY)
    if not given:
        return None
    [key, *others] = given
    if others or not PLAIN_KEY.fullmatch(key):
        raise Problem(
            "bad-request",
            f"Idempotency-Key: one text of 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters, "
            "printable ASCII without spaces",
        )
    return key
