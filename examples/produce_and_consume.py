"""The log: three records are written, and read by two readers that know nothing of one another.

    python examples/produce_and_consume.py

The broker runs for as long as the program does; any Kafka client can talk to it. It prints

    billing     ada: 1 tea
    billing     grace: 2 cups
    billing     ada: 1 pot
    statistics  ada: 1 tea
    statistics  grace: 2 cups
    statistics  ada: 1 pot
"""

from confluent_kafka import Consumer, Producer

from millstream import Broker

ORDERS = [("ada", "1 tea"), ("grace", "2 cups"), ("ada", "1 pot")]


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for customer, order in ORDERS:
        producer.produce("orders", key=customer, value=order)
    producer.flush()  # acknowledged: they are on disk


def read(bootstrap: str, group: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    for _ in ORDERS:
        while (record := consumer.poll(1)) is None or record.error():
            pass
        print(f"{group:11} {record.key().decode()}: {record.value().decode()}")
    consumer.close()  # commits how far it came


if __name__ == "__main__":
    with Broker() as broker:
        write(broker.bootstrap)
        read(broker.bootstrap, "billing")
        read(broker.bootstrap, "statistics")
