"""Which version of an API a connection speaks."""

import pytest

from millstream.broker.wire import ApiKey
from millstream.queues.connection import spoken_version


@pytest.mark.parametrize(
    ("api", "offered", "version"),
    [
        (ApiKey.LIST_GROUPS, range(6), 5),
        (ApiKey.LIST_GROUPS, range(5), 4),  # before KIP-848: groups have no kinds
        (ApiKey.LIST_GROUPS, range(4), None),
        (ApiKey.SHARE_FETCH, range(2), None),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, range(0), None),
    ],
)
def test_an_older_version_is_spoken_where_it_says_enough(
    api: ApiKey, offered: range, version: int | None
) -> None:
    assert spoken_version(api, offered) == version
