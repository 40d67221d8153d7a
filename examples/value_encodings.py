"""Typed topics in JSON, Avro and Protobuf: the same row, three ways to write it, one job for all.

    python examples/value_encodings.py

Schemas are kept in a topic and compared: a change that would break readers is refused. It prints

    json      28 bytes
    avro      10 bytes
    protobuf  10 bytes
    {'item': 'teapot', 'sold': 6}
"""

from confluent_kafka import Consumer, TopicPartition
from google.protobuf import descriptor_pb2
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

import millstream as ms

ENCODINGS = ("json", "avro", "protobuf")
COLUMNS = "item STRING, amount INT"


def sale_message() -> tuple[bytes, str]:
    """`message Sale { string item = 1; int32 amount = 2; }`, as protoc --descriptor_set_out has it;
    a generated class would do as well."""
    files, field = descriptor_pb2.FileDescriptorSet(), descriptor_pb2.FieldDescriptorProto
    message = files.file.add(name="sale.proto", package="shop", syntax="proto3").message_type.add()
    message.name = "Sale"
    message.field.add(name="item", number=1, type=field.TYPE_STRING)
    message.field.add(name="amount", number=2, type=field.TYPE_INT32)
    return files.SerializeToString(), "shop.Sale"


app = ms.App("encodings")
app.topic("sales_json", schema=COLUMNS)
app.topic("sales_avro", schema=COLUMNS, encoding="avro")
app.topic("sales_protobuf", message=sale_message(), encoding="protobuf")


@app.view(key="item")
def sold(sales_json, sales_avro, sales_protobuf):
    sales = sales_json.union(sales_avro).union(sales_protobuf)
    return sales.groupBy("item").agg(F.sum("amount").alias("sold"))


def first_value(topic: str) -> bytes:
    consumer = Consumer({**app.client_config, "group.id": "look"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while (record := consumer.poll(1)) is None or record.error():
        pass
    consumer.close()
    return record.value()


if __name__ == "__main__":
    with app:
        for encoding in ENCODINGS:
            app.publish(f"sales_{encoding}", {"item": "teapot", "amount": 2})
            print(f"{encoding:9} {len(first_value(f'sales_{encoding}'))} bytes")
        app.run(once=True)
        print(*app.view("sold").scan())
