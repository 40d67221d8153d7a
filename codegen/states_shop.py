"""The shop of a picture: its jobs are well, too slow, stopped, failed, and failing once more.

`console_states.py` runs it. Run by itself, one job fails for good, as it is meant to.
"""

import os
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DoubleType

import millstream as ms

# Of each record, in each of two partitions: 20 records a second where some 60 come.
SLOW_SECONDS = 0.1

app = ms.App("shop", data=os.environ["STATES_DATA"])
app.topic(
    "orders",
    schema="order_id BIGINT, country STRING, amount DOUBLE, at TIMESTAMP",
    key="order_id",
    partitions=2,
    event_time="at",
    lateness="10 seconds",
    late="correct",
    keep="1 day",
)


@app.view(key=["window", "country"])
def orders_per_minute(orders: DataFrame) -> DataFrame:
    return orders.groupBy(ms.windows.tumbling("1 minute"), "country").count()


@app.view(key="country")
def orders_per_country(orders: DataFrame) -> DataFrame:
    return orders.groupBy("country").count()


@sf.udf(DoubleType())
def rate_of_the_bank(_country: str) -> float:
    time.sleep(SLOW_SECONDS)
    return 1.08


@app.view(key="order_id", records_max=100)
def orders_in_euro(orders: DataFrame) -> DataFrame:
    return orders.select("order_id", (sf.col("amount") * rate_of_the_bank("country")).alias("euro"))


def send_mail(_rows: DataFrame, _receipt: object) -> None:
    raise ValueError("the template of the mail has no field {country}")


@app.sink(send_mail)
def receipts_by_mail(orders: DataFrame) -> DataFrame:
    return orders


def load(_rows: DataFrame, _receipt: object) -> None:
    raise ConnectionError("the warehouse hung up")


@app.sink(load)
def warehouse(orders: DataFrame) -> DataFrame:
    return orders
