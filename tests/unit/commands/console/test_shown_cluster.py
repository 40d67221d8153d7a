"""Which client is asked, when one has fallen silent. Nobody listens: nothing is asked."""

import gc
import weakref

from millstream.commands.console.shown_cluster import (
    LEFT_SECONDS,
    AnsweringCluster,
    ShownCluster,
)
from millstream.setting_kinds import Address


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened() -> ShownCluster:
    return ShownCluster((Address("127.0.0.1", 9),))


def test_the_same_client_is_asked_while_it_answers() -> None:
    cluster = AnsweringCluster(opened)
    assert cluster() is cluster()


def test_a_client_that_fell_silent_is_replaced() -> None:
    cluster = AnsweringCluster(opened)
    first = cluster()
    first.is_silent = True
    assert cluster() is not first
    assert cluster() is cluster()


def test_a_client_is_not_freed_while_its_requests_may_be_under_way() -> None:
    clock = Clock()
    cluster = AnsweringCluster(opened, clock)
    cluster().is_silent = True
    left = weakref.ref(cluster())
    cluster().is_silent = True
    cluster()
    clock.now += LEFT_SECONDS - 1
    cluster()
    gc.collect()
    assert left() is not None
    clock.now += 1
    cluster()
    gc.collect()
    assert left() is None
