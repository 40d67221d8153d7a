"""A server of the S3 protocol on loopback, in a process of its own (moto). Keeps all in memory."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from pyarrow.fs import S3FileSystem

from tests.support.waiting import eventually

READY_WITHIN_S = 30.0
# Any key is as good as another, but there must be one.
CREDENTIALS: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "mill", "AWS_SECRET_ACCESS_KEY": "stream"}


@contextmanager
def s3_bucket(bucket: str) -> Iterator[str]:
    """Yields the address of a new bucket, as `--to` takes it, without the folder."""
    with closing(socket.create_server(("127.0.0.1", 0))) as held:
        port = held.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | CREDENTIALS
    ) as process:
        try:
            eventually(lambda: _answers(port), what="an S3 server", within_s=READY_WITHIN_S)
            _create(bucket, port)
            yield f"s3://{bucket}/%s?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        finally:
            process.kill()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _create(bucket: str, port: int) -> None:
    S3FileSystem(
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(bucket)
