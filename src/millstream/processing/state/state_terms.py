"""What an operator keeps state for, told in its plan: a changed one is known before it starts.

Spark knows a state function by its code alone. The terms are metadata of its first column; from
there `jobs/plan_reader.py` reads them into the shape of the plan.
"""

from pyspark.sql.types import StructField, StructType

STATE_TERMS = "millstream.state"


def telling(schema: StructType, *terms: object) -> StructType:
    """The schema of an operator's rows, with the terms that its state depends on."""
    first, *others = schema.fields
    noted = first.metadata | {STATE_TERMS: ", ".join(map(str, terms))}
    return StructType([StructField(first.name, first.dataType, first.nullable, noted), *others])
