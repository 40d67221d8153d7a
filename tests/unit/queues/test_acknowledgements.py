from millstream.queues.acknowledgements import (
    Partition,
    Place,
    Settlement,
    acknowledged_topics,
)

ORDERS, MAILS = b"o" * 16, b"m" * 16
ACCEPT, RELEASE, RENEW = Settlement.ACCEPT, Settlement.RELEASE, Settlement.RENEW


def runs(settlements: dict[int, Settlement]) -> list[tuple[int, int, list[int]]]:
    partition = Partition(ORDERS, 0)
    [topic] = acknowledged_topics({Place(partition, o): kind for o, kind in settlements.items()})
    [part] = topic.partitions
    return [
        (one.first_offset, one.last_offset, one.acknowledge_types)
        for one in part.acknowledgement_batches
    ]


def test_neighbours_of_one_type_are_one_batch() -> None:
    assert runs({4: ACCEPT, 5: ACCEPT, 6: ACCEPT}) == [(4, 6, [1])]


def test_another_type_and_a_missing_offset_begin_a_new_batch() -> None:
    assert runs({4: ACCEPT, 5: RELEASE, 6: RENEW, 9: RENEW}) == [
        (4, 4, [1]),
        (5, 5, [2]),
        (6, 6, [4]),
        (9, 9, [4]),
    ]


def test_offsets_are_sorted_however_they_were_settled() -> None:
    assert runs({9: ACCEPT, 2: ACCEPT, 3: ACCEPT}) == [(2, 3, [1]), (9, 9, [1])]


def test_a_topic_is_named_once_with_all_its_partitions() -> None:
    places = [Place(Partition(ORDERS, 1), 0), Place(Partition(MAILS, 0), 0)]
    places += [Place(Partition(ORDERS, 0), 7)]
    topics = acknowledged_topics(dict.fromkeys(places, ACCEPT))
    assert [
        (one.topic_id, [part.partition_index for part in one.partitions]) for one in topics
    ] == [
        (MAILS, [0]),
        (ORDERS, [0, 1]),
    ]
