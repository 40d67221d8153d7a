"""Exactly once between topics: what was read and what was written become visible together.

    python examples/transactions.py

Orders are summed up by customer. The first attempt ends before its commit, as in a crash: nobody
sees anything of it, and the next one reads the same orders again. It prints

    after an attempt that was broken off: []
    after one that was committed: ['ada 50', 'grace 10']
"""

from collections import Counter

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from millstream import Broker

ORDERS = [("ada", "20"), ("grace", "10"), ("ada", "30")]


def sum_up(brokers: dict[str, str], *, is_broken_off: bool) -> None:
    reading = {"group.id": "totals", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(brokers | reading)
    consumer.subscribe(["orders"])
    producer = Producer(brokers | {"transactional.id": "totals-1"})
    producer.init_transactions(30)  # fences an older instance, aborts what it left open
    totals: Counter[str] = Counter()
    for record in consumer.consume(len(ORDERS), timeout=60):
        totals[record.key().decode()] += int(record.value())
    producer.begin_transaction()
    for customer, total in totals.items():
        producer.produce("totals", key=customer, value=str(total))
    producer.flush()
    if not is_broken_off:
        read_to = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(read_to, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
    consumer.close()


def totals_seen(brokers: dict[str, str]) -> list[str]:
    """By a reader of what is committed, which is librdkafka's default."""
    consumer = Consumer(brokers | {"group.id": "look", "enable.partition.eof": True})
    consumer.assign([TopicPartition("totals", 0, 0)])
    found: list[str] = []
    while True:
        record = consumer.poll(1)
        if record is not None and not record.error():
            found.append(f"{record.key().decode()} {record.value().decode()}")
        elif record is not None and record.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return sorted(found)


if __name__ == "__main__":
    with Broker() as broker:
        brokers = {"bootstrap.servers": broker.bootstrap, "metadata.recovery.strategy": "none"}
        orders = Producer(brokers)
        for customer, amount in ORDERS:
            orders.produce("orders", key=customer, value=amount)
        orders.flush()
        sum_up(brokers, is_broken_off=True)
        print("after an attempt that was broken off:", totals_seen(brokers))
        sum_up(brokers, is_broken_off=False)
        print("after one that was committed:", totals_seen(brokers))
