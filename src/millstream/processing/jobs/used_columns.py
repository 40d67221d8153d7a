"""Which columns a job looks at, by the plan that Spark's optimizer makes of its frame.

Not a public interface of Spark: pinned with its version, and tested with it. By name alone, and of
all inputs together: a column that has the name of a used one counts as used. What Spark cannot look
into (functions in Python over whole rows) uses all.
"""

from typing import Any

from pyspark.sql import DataFrame


def used_columns(frame: DataFrame) -> frozenset[str]:
    """The names of all columns that the plan reads or gives."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    inside: Any = frame.sparkSession._jsparkSession
    optimized = inside.sessionState().optimizer().execute(plan)
    found: set[str] = set(_names(optimized.outputSet()))
    waiting = [optimized]
    while waiting:
        node = waiting.pop()
        found.update(_names(node.references()))
        children = node.children()
        waiting.extend(children.apply(number) for number in range(children.size()))
    return frozenset(found)


def _names(attributes: Any) -> list[str]:
    found = attributes.toSeq()
    return [found.apply(number).name() for number in range(found.size())]
