"""An application without the driver."""

import subprocess
import sys

WITHOUT_DRIVER = """
import sys
sys.modules["psycopg"] = None
from millstream import stores
from millstream.base.errors import Rejected
try:
    stores.Postgres
except Rejected as refused:
    print(refused)
"""


def test_the_error_names_the_extra_that_brings_the_driver() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DRIVER], capture_output=True, text=True)
    assert "pip install 'millstream[postgres]'" in done.stdout, done.stderr
