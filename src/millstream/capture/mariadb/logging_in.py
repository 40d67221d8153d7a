"""What a server is given of the password. PyMySQL gives it to any server that asks: in clear by the
plugins `mysql_clear_password` and `dialog`, and sealed with whatever public key the server sends by
the two of SHA-256. Here only a server whose certificate was checked gets it.

Over an unverified connection a server gets proofs: `mysql_native_password`, `client_ed25519`, and
`caching_sha2_password` as far as its cache of proofs goes. On loopback and through a socket MySQL's
RSA exchange is left as it is: nobody is between. Hashes of before MySQL 4.1 are refused everywhere.
"""

from ipaddress import ip_address
from typing import Any, Final

from pymysql.connections import Connection
from pymysql.constants import CLIENT
from pymysql.err import OperationalError

REFUSED_HERE: Final = 2059  # CR_AUTH_PLUGIN_CANNOT_LOAD
CLEAR: Final = ("mysql_clear_password", "dialog")
SHA256: Final = "sha256_password"
CACHING: Final = "caching_sha2_password"
OLD: Final = "mysql_old_password"
NO_TLS: Final = "the URL says that its certificate is checked, and the server offers no TLS"
FAST_AUTH_OK: Final = 3
MORE_DATA: Final = 1


class Refusal:
    """A handler of PyMySQL's for a plugin that is not to be used."""

    def __init__(self, connection: "Connection[Any]") -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        raise refused("a way to log in that would give it the password")


class FastOnly(Refusal):
    """`caching_sha2_password` by proofs alone."""

    def authenticate(self, packet: Any) -> Any:
        from pymysql import _auth

        connection: Any = self._connection
        if packet.is_auth_switch_request():
            salt = packet.read_all().removesuffix(b"\0")
            connection.write_packet(_auth.scramble_caching_sha2(connection.password, salt))
            packet = connection._read_packet()
        if packet.is_ok_packet():
            return packet
        if bytes(packet.get_all_data()[:2]) != bytes((MORE_DATA, FAST_AUTH_OK)):
            raise refused("the password sealed with a key that it sends itself")
        return connection._read_packet()


class GuardedConnection(Connection):
    def _request_authentication(self) -> None:
        """`sha256_password` at the server's first word would be answered before any handler. And
        before 1.2 PyMySQL went on in clear where a server, or who is between, offers no TLS."""
        ours: Any = self  # PyMySQL's own fields are not in its types
        is_to_be_verified = not set(CLEAR) & ours._auth_plugin_map.keys()
        if is_to_be_verified and not ours.server_capabilities & CLIENT.SSL:
            raise OperationalError(REFUSED_HERE, NO_TLS)
        if SHA256 in ours._auth_plugin_map and ours._auth_plugin_name == SHA256:
            raise refused("a way to log in that would give it the password")
        super()._request_authentication()  # type: ignore[misc]  # not in its types


def refused(what: str) -> OperationalError:
    return OperationalError(
        REFUSED_HERE,
        f"the server asks for {what}, and its certificate is not checked. Add ssl_ca=FILE and "
        "ssl_verify_identity=true to the URL, or give the user another way to log in",
    )


def plugins_for(host: str, options: dict[str, Any]) -> dict[str, Any]:
    """By what is known of who answers. PyMySQL's `auth_plugin_map`."""
    old = {OLD: Refusal}
    if is_verified(options):
        return old
    clear = old | dict.fromkeys(CLEAR, Refusal)
    if "unix_socket" in options or is_loopback(host):
        return clear
    return clear | {SHA256: Refusal, CACHING: FastOnly}


def is_verified(options: dict[str, Any]) -> bool:
    return bool(options.get("ssl_ca")) and bool(options.get("ssl_verify_identity"))


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
