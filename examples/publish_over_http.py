"""Rows over HTTP: a client that got no answer sends its row again, and it is written once.

    python examples/publish_over_http.py

`millstream serve` puts the topics of this file behind HTTP; any language will do for a client. A
row that does not fit the topic's columns is refused, and the answer says why. It prints

    201 at clicks:0:0
    201 at clicks:0:0
    422 row 0: field `user`: it is NOT NULL, and is missing
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import millstream

app = millstream.App("publish_over_http")
app.topic("clicks", schema="user STRING NOT NULL, url STRING", key="user", partitions=1)


@contextmanager
def served() -> Iterator[str]:
    """The address of a server of this file, in a process of its own."""
    server = subprocess.Popen(
        [sys.executable, "-m", "millstream", "serve", __file__, "--listen", "127.0.0.1:0"],
        env=os.environ | {"MILLSTREAM_BROKERS": app.bootstrap},
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]
        server.terminate()


def post(url: str, row: dict[str, Any], *, key: str) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    try:
        with urlopen(Request(url, json.dumps(row).encode(), headers)) as answer:
            print(answer.status, "at", json.load(answer)["after"])
    except HTTPError as refused:
        print(refused.status, json.load(refused)["detail"])


if __name__ == "__main__":
    with app, served() as url:
        records = f"{url}/v1/topics/clicks/records"
        post(records, {"user": "ada", "url": "/"}, key="click-1")
        post(records, {"user": "ada", "url": "/"}, key="click-1")  # sent again
        post(records, {"url": "/cart"}, key="click-2")
