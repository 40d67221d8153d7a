"""What may listen where: nothing beyond loopback without TLS and a login, unless told so in words.

An open broker on a network is read, filled and deleted by the first who finds it. So a setting that
is easy to copy from a tutorial (`0.0.0.0`) is not enough to open one. Pure: resolves no names.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from millstream.base.errors import Rejected

# What the setting must say. A sentence cannot be set by mistake, and says what it does.
OPEN_TO_ANYONE = "anyone-on-the-network-may-read-and-write-everything"
LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "localhost.localdomain"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address with its protection. A required client certificate is a login too."""

    host: str
    port: int
    has_tls: bool = False
    has_login: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name that is not known as such may be any."""
        try:
            address = ipaddress.ip_address(self.host.strip("[]").partition("%")[0])
        except ValueError:
            return self.host.lower().rstrip(".") in LOOPBACK_NAMES
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)

    @property
    def missing(self) -> list[str]:
        lacks = [("TLS", self.has_tls), ("a login (SASL)", self.has_login)]
        return [what for what, has in lacks if not has]


class OpenListener(Rejected):
    def __init__(self, *, listener: Listener) -> None:
        missing = " and ".join(listener.missing)
        super().__init__(
            f"{listener.host}:{listener.port} can be reached from other machines, and lacks "
            f"{missing}: anyone there could read and write. Listen on 127.0.0.1, or give it "
            f"{missing}, or say that this is wanted: open_listeners = {OPEN_TO_ANYONE!r}"
        )
        self.listener = listener


class UnprotectedPlain(Rejected):
    def __init__(self, *, listener: Listener) -> None:
        super().__init__(
            f"{listener.host}:{listener.port} offers SASL PLAIN without TLS: passwords would cross "
            "the network as they are. Use SCRAM, or TLS"
        )
        self.listener = listener


def check_listeners(
    listeners: Iterable[Listener], *, mechanisms: Iterable[str] = (), open_listeners: str = ""
) -> list[str]:
    """Raise for one that must not be; the warnings to show for those that are open on purpose."""
    warnings = []
    offers_plain = "PLAIN" in mechanisms
    for listener in listeners:
        if listener.is_loopback:
            continue
        if offers_plain and listener.has_login and not listener.has_tls:
            raise UnprotectedPlain(listener=listener)
        if listener.missing and open_listeners != OPEN_TO_ANYONE:
            raise OpenListener(listener=listener)
        if listener.missing:
            missing = " and ".join(listener.missing)
            warnings.append(f"{listener.host}:{listener.port} is open without {missing}")
    return warnings
