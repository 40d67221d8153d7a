"""Functions of an application's file go to Spark's workers by value: workers do not import it.

To import it there would make its App again, and call its app.run(). What it imports itself is
imported by workers as usual.
"""

from types import ModuleType

from pyspark import cloudpickle


def carry_by_value(module: ModuleType) -> None:
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # not typed there
