"""Topics by pattern: what RE2 takes, and how a group follows topics that come and go."""

from millstream.broker.groups.subscription_patterns import is_valid, matches
from millstream.broker.groups.topic_catalog import CataloguedTopic
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.consumer_steps import Client, ConsumerDriver, parts, topic


def test_the_whole_name_must_match() -> None:
    assert matches("orders-.*", "orders-eu")
    assert not matches("orders", "orders-eu")
    assert not matches("eu", "orders-eu")


def test_what_re2_does_not_know_is_refused() -> None:
    assert not is_valid("(orders")
    assert not is_valid(r"(?=orders)")  # Java and Python know it; it needs backtracking
    driver = ConsumerDriver()
    reply = Client(driver, "ada", pattern="(orders").join()
    assert reply.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(driver.group.book) == 0


def test_a_pattern_brings_the_topics_that_match() -> None:
    driver = ConsumerDriver(topic("orders-eu", 1), topic("orders-us", 1), topic("prices", 1))
    ada = Client(driver, "ada", pattern="orders-.*")
    ada.join()
    assert ada.owned == parts("orders-eu", 0) | parts("orders-us", 0)


def test_topics_that_appear_or_go_are_followed() -> None:
    driver = ConsumerDriver(topic("orders-eu", 1))
    ada = Client(driver, "ada", pattern="orders-.*")
    ada.join()
    driver.change_topic(topic("orders-us", 2))
    driver.settle(ada)
    assert ada.owned == parts("orders-eu", 0) | parts("orders-us", 0, 1)
    driver.remove_topic("orders-eu")
    driver.settle(ada)
    assert ada.owned == parts("orders-us", 0, 1)


def test_a_pattern_finds_internal_topics_but_none_that_nobody_may_read() -> None:
    metadata = CataloguedTopic("__millstream_metadata", b"m" * 16, 1, is_unreadable=True)
    driver = ConsumerDriver(metadata, topic("__consumer_offsets", 1), topic("orders", 1))
    ada = Client(driver, "ada", pattern=".*")
    ada.join()
    assert ada.owned == parts("orders", 0) | parts("__consumer_offsets", 0)
    driver.change_topic(metadata._replace(partition_count=2))
    driver.settle(ada)
    assert ada.owned == parts("orders", 0) | parts("__consumer_offsets", 0)


def test_names_and_a_pattern_add_up() -> None:
    driver = ConsumerDriver(topic("orders", 1), topic("prices", 1))
    ada = Client(driver, "ada", "prices", pattern="ord.*")
    ada.join()
    assert ada.owned == parts("orders", 0) | parts("prices", 0)


def test_a_pattern_is_forgotten_with_its_last_member() -> None:
    driver = ConsumerDriver(topic("orders", 2))
    ada, bob = (Client(driver, name, pattern="ord.*") for name in ("ada", "bob"))
    ada.join()
    bob.join()
    bob.leave()
    assert list(driver.group.book.patterns) == ["ord.*"]
    ada.leave()
    assert list(driver.group.book.patterns) == []
    assert {key.name for key in driver.stored} == {""}


def test_a_pattern_finds_what_its_member_may_know_of() -> None:
    visible = {"orders-eu"}
    driver = ConsumerDriver(topic("orders-eu", 1), topic("orders-us", 1))
    ada = Client(driver, "ada", pattern="orders-.*", sees=visible.__contains__)
    ada.join()
    assert ada.owned == parts("orders-eu", 0)
    visible.add("orders-jp")
    driver.change_topic(topic("orders-jp", 1))
    driver.change_topic(topic("orders-mx", 1))
    driver.settle(ada)
    assert ada.owned == parts("orders-eu", 0) | parts("orders-jp", 0)
    driver.restart()
    driver.change_topic(topic("orders-ca", 1))  # before anybody was heard who might see it
    driver.settle(ada)
    assert ada.owned == parts("orders-eu", 0) | parts("orders-jp", 0)


def test_what_matches_is_looked_up_again_after_a_restart() -> None:
    driver = ConsumerDriver(topic("orders-eu", 1))
    ada = Client(driver, "ada", pattern="orders-.*")
    ada.join()
    driver.catalog.put(topic("orders-us", 1))  # and the broker stopped before the group knew
    driver.restart()
    driver.settle(ada)
    assert len(ada.owned) == 2
