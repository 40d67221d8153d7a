"""Starts a Python worker of Spark so that it connects back before it imports anything large.

Spark gives a worker that it starts ten seconds to connect, and ten more to say its secret; neither
can be set. On a busy machine the imports of pyspark, pandas and pyarrow alone can take longer: then
"Python worker failed to connect back", and the job fails. This file is run by its path in place of
`-m MODULE` (worker_python.py): it connects and says the secret first, with the standard library
alone, then runs the module, which gets that connection. It imports nothing of Millstream.
"""

import os
import runpy
import socket
import sys

HOST = "127.0.0.1"
LENGTH_BYTES = 4
PORT, SECRET = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET"
ACCEPTED = b"ok"
BUFFER_BYTES = 65536


def connected(port: int, secret: str) -> socket.socket:
    """Connect and say the secret, as pyspark.util does it."""
    sock = socket.create_connection((HOST, port))
    said = secret.encode()
    sock.sendall(len(said).to_bytes(LENGTH_BYTES, "big") + said)
    length = int.from_bytes(_read(sock, LENGTH_BYTES), "big")
    if _read(sock, length) != ACCEPTED:
        raise ConnectionError("Spark did not take the worker's secret")
    return sock


def _read(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = sock.recv(size - len(found))
        if not part:
            raise ConnectionError("Spark closed the connection to its worker")
        found += part
    return found


def hand_over(sock: socket.socket, port: int) -> None:
    """Let pyspark find this connection when it connects to that port for the first time."""
    import pyspark.util

    connects, waiting = pyspark.util.local_connect_and_auth, [sock]

    def connect(conn_info, auth_secret):  # type: ignore[no-untyped-def]
        if not waiting or str(conn_info) != str(port):
            return connects(conn_info, auth_secret)
        sock = waiting.pop()
        size = int(os.environ.get("SPARK_BUFFER_SIZE", BUFFER_BYTES))
        return sock.makefile("rwb", size), sock

    pyspark.util.local_connect_and_auth = connect


def main() -> None:
    _, module, *arguments = sys.argv
    if not sys.flags.safe_path:
        sys.path[0] = ""  # as after `-m`: not the folder of this file
    sys.argv = [module, *arguments]
    port, secret = os.environ.get(PORT), os.environ.get(SECRET)
    if port and secret and os.environ.get("SPARK_PREFER_IPV6", "false").lower() != "true":
        hand_over(connected(int(port), secret), int(port))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
