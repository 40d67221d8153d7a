"""A declared topic's schema, settled with what the `_schemas` topic knows of it."""

from base64 import b64encode

from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.schemas.compatibility import IncompatibleSchema
from millstream.schemas.schema_book import SchemaVersion
from millstream.schemas.schema_topic import SchemaTopic


def settle_writer(
    schemas: SchemaTopic, declared: DeclaredTopic | DeclaredTable
) -> SchemaVersion | None:
    """Register what is written; raises if that does not follow what was written before."""
    if declared.schema is None:
        return None
    definition = b64encode(declared.message.files).decode() if declared.message else ""
    return schemas.register(
        declared.name, declared.schema, encoding=declared.encoding, definition=definition
    )


def settle_reader(schemas: SchemaTopic, declared: DeclaredTopic | DeclaredTable) -> None:
    """Register what is read if it is a step forward; else it must be readable as it is.

    A reader may leave fields out, which a next version may not.
    """
    try:
        settle_writer(schemas, declared)
    except IncompatibleSchema:
        assert declared.schema is not None, "only a schema can be incompatible"
        schemas.check_reader(declared.name, declared.schema)
