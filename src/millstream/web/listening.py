"""Where the HTTP server may listen: beyond loopback only with a token, and with TLS around it.

Pure: resolves no names.
"""

from dataclasses import dataclass
from pathlib import Path

from millstream.base.errors import Rejected
from millstream.broker.security.listening import Listener

# What the setting must say. A sentence cannot be set by mistake, and says what it does.
PLAIN_ON_THE_NETWORK = "anyone-on-the-way-can-read-the-token-and-all-rows"
TOKEN_CHARACTERS_MIN = 20


class NoTokenBeyondLoopback(Rejected):
    def __init__(self, *, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} can be reached from other machines, and there is no token: anyone "
            "there could read and publish. Listen on 127.0.0.1, or make a token (`head -c 24 "
            "/dev/urandom | base64 > http.token && chmod 600 http.token`) and give --token-file "
            "http.token"
        )
        self.host, self.port = host, port


class PlainBeyondLoopback(Rejected):
    def __init__(self, *, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} can be reached from other machines, and has no TLS: the token would "
            "cross the network as it is. Give tls_certificate and tls_key, or listen on "
            "127.0.0.1 behind a proxy that has TLS, or say that this is wanted: "
            f"plain_http = {PLAIN_ON_THE_NETWORK!r}"
        )
        self.host, self.port = host, port


class WeakToken(Rejected):
    def __init__(self) -> None:
        super().__init__(
            f"the token has less than {TOKEN_CHARACTERS_MIN} characters, or others than printable "
            "ASCII without spaces: make one with `head -c 24 /dev/urandom | base64`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    certificate: Path
    key: Path


def check_listening(
    host: str, port: int, *, token: str | None, tls: TlsFiles | None, plain_http: str = ""
) -> None:
    if token is not None:
        require_strong(token)
    if is_loopback(host):
        return
    if token is None:
        raise NoTokenBeyondLoopback(host=host, port=port)
    if tls is None and plain_http != PLAIN_ON_THE_NETWORK:
        raise PlainBeyondLoopback(host=host, port=port)


def require_strong(token: str) -> None:
    is_plain = token.isascii() and token.isprintable() and " " not in token
    if not is_plain or len(token) < TOKEN_CHARACTERS_MIN:
        raise WeakToken


def is_loopback(host: str) -> bool:
    return Listener(host=host, port=0).is_loopback
