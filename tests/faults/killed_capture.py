"""A capture that is killed again and again.

python -m tests.faults.killed_capture BOOTSTRAP NAME, with the database's URL in CAPTURED_URL
"""

import logging
import os
import sys

from millstream.capture.runner import CaptureRunner
from tests.support.approvals import approved
from tests.support.thread_dumps import dump_on_signal

if __name__ == "__main__":
    dump_on_signal()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    client, name = {"bootstrap.servers": sys.argv[1]}, sys.argv[2]
    CaptureRunner(
        client, name, approval=approved(client, name), url=os.environ["CAPTURED_URL"]
    ).run()
