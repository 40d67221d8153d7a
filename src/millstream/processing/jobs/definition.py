"""What a job was started with, kept so that it can go on when the application's code has changed.

While a changed view is rebuilt, the generation before stays current: with its own function, which
is no longer in the application. So a function and its inputs are kept beside the checkpoint, as
Spark's workers get them (cloudpickle). What the function calls in other files of the application is
not kept: that is as it is now.
"""

import pickle
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark import cloudpickle

from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.job import Job, ToView, code_mark

Definition = tuple[Job, dict[str, Declared]]


def encode_definition(job: Job, inputs: Mapping[str, Declared]) -> bytes | None:
    """None if it cannot be kept: a function that holds a socket or a lock, say.

    The store of its view is left out: its address may have a password in it.
    """
    try:
        kept = (with_store(job, None), dict(inputs))
        content: bytes = cloudpickle.dumps(kept)  # type: ignore[no-untyped-call]  # not typed there
        return content
    except Exception:  # whatever is in the function's reach decides what is raised
        return None


def with_store(job: Job, store: Any) -> Job:
    """The same job, with its view in this store."""
    if not isinstance(job.output, ToView):
        return job
    return replace(job, output=replace(job.output, store=store))


def decode_definition(content: bytes | None, *, code: str) -> Definition | None:
    """None if it cannot be had any more. `code` marks the function that is wanted."""
    if content is None:
        return None
    try:
        job, inputs = pickle.loads(content)
    except Exception:  # of another version of Python, of Millstream or of a module
        return None
    if not isinstance(job, Job) or (_is_imported(job.function) and code_mark(job.function) != code):
        return None
    return job, inputs


def _is_imported(function: Any) -> bool:
    """Whether it was kept by its name alone, and so is what the name means now."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return getattr(module, getattr(function, "__qualname__", ""), None) is function
