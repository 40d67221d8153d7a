"""What a view's link to Redis says when something is wrong, without a server."""

import sys

import pytest
from redis import exceptions

from millstream.base.errors import Rejected, Retryable
from millstream.views.stores.redis.link import (
    RedisFull,
    RedisLink,
    RedisMissing,
    RedisRefused,
    error_from,
    shown_address,
)


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (exceptions.ConnectionError("refused"), Retryable),
        (exceptions.TimeoutError("late"), Retryable),
        (exceptions.BusyLoadingError("loading"), Retryable),
        (exceptions.ReadOnlyError("a replica"), Retryable),
        (exceptions.ResponseError("BUSY Redis is busy running a script"), Retryable),
        (exceptions.OutOfMemoryError("used memory > 'maxmemory'"), RedisFull),
        (exceptions.ResponseError("MISCONF Redis is configured to save snapshots"), RedisFull),
        (exceptions.ResponseError("Error running script: 7: -OOM command not allowed"), RedisFull),
        (exceptions.AuthenticationError("WRONGPASS"), Rejected),
        (exceptions.NoPermissionError("NOPERM"), Rejected),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), Rejected),
    ],
)
def test_an_error_is_of_the_family_that_says_what_to_do(
    error: Exception, family: type[Exception]
) -> None:
    found = error_from(error, "redis://cache/0, key shop:counts")
    assert isinstance(found, family)
    assert "redis://cache/0, key shop:counts" in str(found)


def test_an_address_is_shown_without_its_password() -> None:
    assert shown_address("rediss://ada:secret@cache:6380/1?x=secret") == "rediss://cache:6380/1"
    assert shown_address("redis://:p@ss@cache:6379/0") == "redis://cache:6379/0"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(RedisRefused, match=r"such as redis://127\.0\.0\.1:6379/0"):
        RedisLink("cache:6379", prefix="shop", view="counts").notes()


def test_without_the_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(RedisMissing, match=r"pip install 'millstream\[redis\]'"):
        RedisLink("redis://cache", prefix="shop", view="counts").notes()
