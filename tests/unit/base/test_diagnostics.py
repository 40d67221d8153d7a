import json
import logging
import subprocess
import sys

from millstream.base.diagnostics import JsonLines, TextLines


def test_an_exception_is_a_field_of_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        trouble = sys.exc_info()
    record = logging.LogRecord(
        "millstream.x", logging.ERROR, "x.py", 1, "%s failed", ("job",), trouble
    )
    record.created = 1_800_000_000.25
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("exception").endswith("ValueError: two\nlines")
    assert found == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "error",
        "logger": "millstream.x",
        "message": "job failed",
    }


def test_what_a_client_wrote_makes_no_line_of_its_own() -> None:
    record = logging.LogRecord(
        "x", logging.INFO, "x.py", 1, "group %s is there", ("a\nERROR forged\x1b[2J\u2028é",), None
    )
    line = TextLines("%(levelname)s %(message)s").format(record)
    assert line == r"INFO group a\nERROR forged\x1b[2J\u2028é is there"


def test_an_error_that_nobody_can_catch_is_a_line_too() -> None:
    program = """
from millstream.base.diagnostics import set_up_diagnostics

class Held:
    def __del__(self):
        raise ValueError("not closed")

set_up_diagnostics("json")
Held()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stderr)
    assert found["level"] == "error"
    assert found["message"].endswith("not closed")
    assert "Traceback" in found["exception"]
