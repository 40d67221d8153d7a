"""Topics as groups see them."""

from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog

PINNED = -1834251083429993311
CLICKS = CataloguedTopic("clicks", bytes(range(16)), 3)


def test_the_hash_of_topics_is_of_what_they_are_and_the_same_in_every_version() -> None:
    """It is stored with each group: one that is made otherwise rebalances all groups at a start."""
    catalog = TopicCatalog([CLICKS, CataloguedTopic("orders", bytes(16), 1)])
    assert catalog.hash_of(["orders", "clicks", "none"]) == PINNED
    assert catalog.hash_of(["clicks", "orders", "clicks"]) == PINNED
    catalog.put(CLICKS._replace(is_unreadable=True))
    assert catalog.hash_of(["clicks", "orders"]) == PINNED
    for changed in (CLICKS._replace(partition_count=4), CLICKS._replace(id=b"a" * 16)):
        catalog.put(changed)
        assert catalog.hash_of(["clicks", "orders"]) != PINNED
    assert catalog.hash_of(["none"]) == 0
