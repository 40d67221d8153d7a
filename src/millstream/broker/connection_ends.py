"""Who is at the two ends of a connection, as its transport and its TLS know them."""

import asyncio
import select

from millstream.broker.handlers import Peer


def peer_of(transport: asyncio.BaseTransport, advertised: tuple[str, int] | None) -> Peer:
    """What a client is told to connect to is where it came, unless we were told a name for that."""
    remote = transport.get_extra_info("peername") or ("?", 0)
    local = transport.get_extra_info("sockname") or ("?", 0)
    local_host, local_port = advertised or (str(local[0]), 0)
    return Peer(str(remote[0]), int(remote[1]), local_host, local_port or int(local[1]))


def certified_principal(transport: asyncio.BaseTransport) -> str | None:
    """Whose certificate the client has shown, if it was asked for one: `User:CN=ada`."""
    tls = transport.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    if not certificate:
        return None
    from millstream.broker.security.tls import principal_of

    return principal_of(certificate)


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the other side has closed its end, whatever of it is still unread. On Linux."""
    connected = transport.get_extra_info("socket")
    hung_up = getattr(select, "POLLRDHUP", 0)
    if connected is None or not hung_up or connected.fileno() < 0:
        return False
    watched = select.poll()
    watched.register(connected.fileno(), hung_up)
    return bool(watched.poll(0))
