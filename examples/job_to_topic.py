"""A job that writes into a topic, exactly once: rows and the receipt of their batch together.

    python examples/job_to_topic.py

Any Kafka client reads what it writes, each row once, whatever is killed in between. It prints

    b'7' {"id":7,"customer":"ada","amount":120.0}
    b'9' {"id":9,"customer":"bob","amount":300.0}
"""

from confluent_kafka import Consumer

import millstream as ms

app = ms.App("job_to_topic")
app.topic("orders", schema="id INT, customer STRING, amount DOUBLE", partitions=1)


@app.job(to="large_orders", key="id")
def large_orders(orders):
    return orders.filter("amount >= 100")


def read(count: int) -> None:
    consumer = Consumer({**app.client_config, "group.id": "look", "auto.offset.reset": "earliest"})
    consumer.subscribe(["large_orders"])
    while count:
        record = consumer.poll(1)
        if record is not None and not record.error():
            print(record.key(), record.value().decode())
            count -= 1
    consumer.close()


if __name__ == "__main__":
    with app:
        app.publish("orders", {"id": 7, "customer": "ada", "amount": 120.0})
        app.publish("orders", {"id": 8, "customer": "ada", "amount": 40.0})
        app.publish("orders", {"id": 9, "customer": "bob", "amount": 300.0})
        app.run(once=True)
        app.run(once=True)  # finds nothing new
        read(2)
