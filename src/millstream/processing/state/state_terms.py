"""What an operator keeps state for, and until when it can use an event: noted in its plan.

Spark knows a state function by its code alone. The notes are metadata of its first column; from
there `jobs/plan_reader.py` reads them, so that both are known before the job starts.
"""

import json
from dataclasses import asdict

from pyspark.sql.types import StructField, StructType

from millstream.processing.reading.last_use import LastUse

STATE_TERMS = "millstream.state"
LAST_USE = "millstream.last_use"


def telling(schema: StructType, *terms: object) -> StructType:
    """The schema of an operator's rows, with the terms that its state depends on."""
    return _noted(schema, STATE_TERMS, ", ".join(map(str, terms)))


def using(schema: StructType, last_use: LastUse) -> StructType:
    """The schema of an operator's rows, with until when it can use an event."""
    return _noted(schema, LAST_USE, json.dumps(asdict(last_use)))


def _noted(schema: StructType, key: str, text: str) -> StructType:
    first, *others = schema.fields
    noted = first.metadata | {key: text}
    return StructType([StructField(first.name, first.dataType, first.nullable, noted), *others])
