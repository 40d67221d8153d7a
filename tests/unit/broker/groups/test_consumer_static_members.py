"""Static members of a consumer group: they go for a while, and find their partitions again."""

import pytest

from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.consumer_steps import SESSION_MS, Client, ConsumerDriver, topic


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(topic("orders", 4))


def settled(driver: ConsumerDriver) -> tuple[Client, Client]:
    ada = Client(driver, "ada-1", "orders", instance_id="ada")
    bob = Client(driver, "bob-1", "orders", instance_id="bob")
    ada.join()
    bob.join()
    driver.settle(ada, bob)
    return ada, bob


def test_who_leaves_for_a_while_and_returns_has_what_it_had(driver: ConsumerDriver) -> None:
    ada, bob = settled(driver)
    held, epoch = bob.owned, ada.epoch
    assert bob.leave(-2).epoch == -2
    assert ada.beat().assigned is None
    back = Client(driver, "bob-2", "orders", instance_id="bob")
    assert back.join().error is ErrorCode.NONE
    assert back.owned == held
    assert (ada.beat().epoch, back.epoch) == (epoch, epoch)


def test_who_does_not_return_in_its_session_is_out(driver: ConsumerDriver) -> None:
    ada, bob = settled(driver)
    bob.leave(-2)
    driver.wait(SESSION_MS, ada)
    driver.settle(ada)
    assert len(ada.owned) == 4


def test_an_instance_id_in_use_is_not_released(driver: ConsumerDriver) -> None:
    settled(driver)
    thief = Client(driver, "bob-2", "orders", instance_id="bob")
    assert thief.join().error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_predecessor_of_a_returned_member_is_fenced(driver: ConsumerDriver) -> None:
    _, bob = settled(driver)
    bob.leave(-2)
    Client(driver, "bob-2", "orders", instance_id="bob").join()
    assert bob.beat().error is ErrorCode.FENCED_INSTANCE_ID
    assert bob.leave(-1).error is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_that_nobody_had_is_unknown(driver: ConsumerDriver) -> None:
    settled(driver)
    assert driver.beat("eve-1", 3, instance_id="eve").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_left_for_a_while_is_still_away_after_a_restart(
    driver: ConsumerDriver,
) -> None:
    ada, bob = settled(driver)
    held = bob.owned
    bob.leave(-2)
    driver.restart()
    back = Client(driver, "bob-2", "orders", instance_id="bob")
    back.join()
    assert back.owned == held
    driver.restart()
    driver.settle(ada, back)
    assert back.owned == held


def test_a_static_member_that_leaves_for_good_is_gone(driver: ConsumerDriver) -> None:
    ada, bob = settled(driver)
    bob.leave(-1)
    driver.settle(ada)
    assert len(ada.owned) == 4
