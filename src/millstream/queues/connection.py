"""One connection to one broker: TLS, the versions that it offers, the login, then call by call.

The thin shell of `wire/` and `login.py`. Calls do not overlap. What goes wrong with the connection
is `ConnectionLost`, whatever the cause; it never reconnects by itself.
"""

import asyncio
import contextlib
import itertools
import secrets
from types import TracebackType
from typing import TypeVar

from millstream._version import __version__
from millstream.base.errors import Rejected, Retryable
from millstream.broker.wire import (
    ApiKey,
    ErrorCode,
    MalformedMessage,
    Message,
    decode_response,
    encode_request,
)
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.broker.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.broker.wire.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.queues.access import Access, Address, Credentials
from millstream.queues.login import LoginFailed, login_of

M = TypeVar("M", bound=Message)

CLIENT_ID = "millstream-queue"
CONNECT_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 30.0  # beside the time that the request itself allows
FRAME_BYTES_MAX = 100 << 20
SIZE_BYTES = 4
NONCE_BYTES = 24
LOGIN_LIFE_USED = 0.8  # of a login that the broker limits; then it is renewed

# The one version of each API that is spoken here. Two of them need Kafka 4.2: renewal (KIP-1222).
VERSIONS = {
    ApiKey.OFFSET_FETCH: 8,  # several groups at once, and topics by name still
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.API_VERSIONS: 3,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.SHARE_GROUP_HEARTBEAT: 1,
    ApiKey.SHARE_FETCH: 2,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.SHARE_GROUP_DESCRIBE: 1,
    ApiKey.STREAMS_GROUP_DESCRIBE: 0,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 1,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
}
# To a broker that has no share groups: what it says is without the kinds of groups.
OLDER_VERSIONS = {ApiKey.LIST_GROUPS: 4}


class ConnectionLost(Retryable):
    def __init__(self, *, address: Address, reason: str) -> None:
        super().__init__(f"the connection to {address} is lost: {reason}")
        self.address, self.reason = address, reason


class BrokerTooOld(Rejected):
    def __init__(self, *, address: Address, api: str, version: int) -> None:
        super().__init__(
            f"the broker at {address} does not offer {api} version {version}: queues need Apache "
            "Kafka 4.2 or Millstream, with share groups enabled"
        )
        self.address, self.api, self.version = address, api, version


class Connection:
    """Use it as an async context manager, or `close` it."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self._reader, self._writer = reader, writer
        self._correlation_ids = itertools.count(1)
        self._offered: dict[int, range] = {}
        self._credentials: Credentials | None = None
        self._login_ends: float | None = None  # by the loop's clock

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def close(self) -> None:
        """At once: every answer was read, or is not wanted any more."""
        self._writer.transport.abort()

    async def call(self, request: Message, answer: type[M], *, wait_ms: int = 0) -> M:
        """Send and wait for the answer; `wait_ms` is how long the request lets the broker wait."""
        if self._login_ends is not None and asyncio.get_running_loop().time() > self._login_ends:
            await self._log_in_again()
        version = self._version_of(request)
        seconds_max = ANSWER_SECONDS_MAX + wait_ms / 1000
        try:
            async with asyncio.timeout(seconds_max):
                frame = await self._exchange(request, version)
            _, message = decode_response(answer, version, frame)
        except TimeoutError:
            raise self._lost(f"no answer within {seconds_max:.0f} s") from None
        except asyncio.IncompleteReadError as error:
            raise self._lost("the broker hung up") from error
        except OSError as error:
            raise self._lost(str(error) or "it was closed") from error
        except MalformedMessage as error:
            raise self._lost(str(error)) from error
        return message

    async def _exchange(self, request: Message, version: int) -> bytes:
        chunks = encode_request(request, version, next(self._correlation_ids), CLIENT_ID)
        self._writer.writelines(chunks)
        await self._writer.drain()
        size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), "big")
        if size > FRAME_BYTES_MAX:
            raise self._lost(f"an answer of {size} bytes")
        return await self._reader.readexactly(size)

    def _version_of(self, request: Message) -> int:
        api = ApiKey(request.__schema__.api_key or 0)
        if not self._offered:
            return VERSIONS[api]
        version = spoken_version(api, self._offered.get(api, range(0)))
        if version is None:
            raise BrokerTooOld(address=self.address, api=api.name, version=VERSIONS[api])
        return version

    def _lost(self, reason: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(address=self.address, reason=reason)

    async def learn_versions(self) -> None:
        request = ApiVersionsRequest(
            client_software_name="millstream", client_software_version=__version__
        )
        answer = await self.call(request, ApiVersionsResponse)
        self._offered = {
            one.api_key: range(one.min_version, one.max_version + 1) for one in answer.api_keys
        }

    async def _log_in_again(self) -> None:
        """A login of limited life is renewed on its connection (KIP-368)."""
        assert self._credentials is not None
        self._login_ends = None
        await self.log_in(self._credentials)

    async def log_in(self, credentials: Credentials) -> None:
        user = credentials.user
        handshake = SaslHandshakeRequest(mechanism=credentials.mechanism)
        offered = await self.call(handshake, SaslHandshakeResponse)
        if offered.error_code != ErrorCode.NONE:
            mechanisms = ", ".join(offered.mechanisms)
            raise LoginFailed(user=user, reason=f"the broker offers {mechanisms or 'no login'}")
        login = login_of(credentials, nonce=secrets.token_hex(NONCE_BYTES))
        message: bytes | None = login.first()
        while message is not None:
            request = SaslAuthenticateRequest(auth_bytes=message)
            answer = await self.call(request, SaslAuthenticateResponse)
            if answer.error_code != ErrorCode.NONE:
                raise LoginFailed(user=user, reason=answer.error_message or "refused")
            message = login.answer(bytes(answer.auth_bytes))
        self._credentials = credentials
        if answer.session_lifetime_ms > 0:
            seconds = LOGIN_LIFE_USED * answer.session_lifetime_ms / 1000
            self._login_ends = asyncio.get_running_loop().time() + seconds


def spoken_version(api: ApiKey, offered: range) -> int | None:
    """None: broker and client have none in common."""
    known = (VERSIONS[api], OLDER_VERSIONS.get(api))
    return next((one for one in known if one is not None and one in offered), None)


async def connect(address: Address, access: Access) -> Connection:
    """A connection that is ready for calls."""
    context = access.tls.context() if access.tls is not None else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(*address, ssl=context)
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(address=address, reason=str(error) or "no answer") from error
    connection = Connection(address, reader, writer)
    try:
        await connection.learn_versions()
        if access.credentials is not None:
            await connection.log_in(access.credentials)
    except BaseException:
        connection.close()
        raise
    return connection


async def connect_to_any(access: Access) -> Connection:
    """To the first broker that answers; raises what the last one said."""
    problem: ConnectionLost | None = None
    for address in access.brokers:
        try:
            return await connect(address, access)
        except ConnectionLost as error:
            problem = error
    assert problem is not None, "an Access has an address"
    raise problem
