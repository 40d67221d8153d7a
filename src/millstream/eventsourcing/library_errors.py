"""Our errors as those of the `eventsourcing` library, by what to do next."""

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.eventsourcing.query import ConditionFailed
from millstream.schemas.library_missing import LibraryMissing

try:
    from eventsourcing.persistence import DataError, IntegrityError, InternalError, OperationalError
except ModuleNotFoundError as error:
    use = "PERSISTENCE_MODULE=millstream.eventsourcing.recorders"
    raise LibraryMissing(library="eventsourcing", extra="eventsourcing-library", use=use) from error


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except ConditionFailed as error:
        raise IntegrityError(str(error)) from error
    except Retryable as error:
        raise OperationalError(str(error)) from error
    except Rejected as error:
        raise DataError(str(error)) from error
    except Corrupt as error:
        raise InternalError(str(error)) from error
