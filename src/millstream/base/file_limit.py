"""How many files and connections this process may have open: as many as the system gives."""

import contextlib
import resource


def raise_file_limit() -> int:
    """Raise the soft limit, which is often 1,024, to the hard one; what holds then."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems name a limit they do not give
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft
