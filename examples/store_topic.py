"""A view in a compacted topic: a table that every Kafka client can follow, and any app can read.

    python examples/store_topic.py

The last value of each key is its row; a key without a value is gone. It prints

    b'ada' b'{"customer":"ada","city":"Paris"}'
    b'bob' b'{"customer":"bob","city":"Oslo"}'
    b'ada' b'{"customer":"ada","city":"Rome"}'
    b'bob' None
    the table: [{'customer': 'ada', 'city': 'Rome'}]
"""

from typing import Any

from confluent_kafka import Consumer

import millstream as ms

app = ms.App("store_topic")
app.table("customers", schema="customer STRING, city STRING", key="customer")


@app.view(key="customer", store=ms.stores.Topic("homes", partitions=1))
def homes(customers):
    return customers


def change(*rows: dict[str, Any]) -> None:
    app.publish("customers", list(rows))
    app.run(once=True)


def follow(count: int) -> None:
    consumer = Consumer({**app.client_config, "group.id": "look", "auto.offset.reset": "earliest"})
    consumer.subscribe(["homes"])
    while count:
        record = consumer.poll(1)
        if record is not None and not record.error():
            print(record.key(), record.value())
            count -= 1
    consumer.close()


if __name__ == "__main__":
    with app:
        change({"customer": "ada", "city": "Paris"}, {"customer": "bob", "city": "Oslo"})
        change({"customer": "ada", "city": "Rome"})
        change({"customer": "bob", "_change": "delete"})
        follow(4)
        print("the table:", app.view("homes").scan())
