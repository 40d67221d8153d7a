"""A view in Delta Lake: a warehouse table that is never half of a batch, without a second JVM.

    python examples/store_delta.py

DuckDB, Polars, Trino and Spark read it where it is, and as it was. It prints

    now:    {'city': ['Oslo', 'Rome'], 'people': [2, 1]}
    before: {'city': ['Oslo', 'Rome'], 'people': [1, 1]}
"""

from deltalake import DeltaTable

import millstream as ms

app = ms.App("store_delta")
app.topic("arrivals", schema="city STRING")


@app.view(key="city", store=ms.stores.Delta("lake"))
def people(arrivals):
    return arrivals.groupBy("city").count().withColumnRenamed("count", "people")


def arrive(*cities: str) -> int:
    """The version of the table that has them."""
    app.publish("arrivals", [{"city": city} for city in cities])
    app.run(once=True)
    return DeltaTable("lake/people/current").version()


def rows(version: int) -> dict[str, list[object]]:
    table = DeltaTable("lake/people/current", version=version).to_pyarrow_table()
    return table.sort_by("city").to_pydict()


if __name__ == "__main__":
    with app:
        before, now = arrive("Oslo", "Rome"), arrive("Oslo")
    print("now:   ", rows(now))
    print("before:", rows(before))
