"""The contract suites that the `eventsourcing` library ships.

They import the cipher that needs pycryptodome; the library has the same one over `cryptography`,
which is installed here.
"""

import sys

from eventsourcing import cryptography

sys.modules.setdefault("eventsourcing.cipher", cryptography)

from eventsourcing.dcb import tests as dcb_suites  # noqa: E402 - only now it can be imported
from eventsourcing.tests import application as application_suites  # noqa: E402 - likewise
from eventsourcing.tests import persistence as suites  # noqa: E402 - likewise
from eventsourcing.tests import projection as projection_suites  # noqa: E402 - likewise

__all__ = ["application_suites", "dcb_suites", "projection_suites", "suites"]
