"""Schemas of topics: how they are declared, translated, compared and kept.

    schema_of("id BIGINT NOT NULL, at TIMESTAMP")     # Spark's DDL
    schema_of(Order)                                  # a dataclass, or a pydantic model

`ddl`, `classes`, `spark_json` and `arrow_types` translate; `compatibility` says what may change;
`schema_book` is what a `_schemas` topic means, and `schema_topic` reads and writes one. Only the
last does I/O. The shape itself is `base/schema.py`; bytes are the business of `values/`.
"""

from millstream.schemas.declaration import Declared, schema_of

__all__ = ["Declared", "schema_of"]
