"""The pytest plugin is loaded in every project that has Millstream, with or without Spark."""

import subprocess
import sys

WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # an import of it now fails
import millstream.testing
assert millstream.testing.millstream_steps
assert not [name for name in sys.modules if name.startswith("millstream.processing")]
"""


def test_the_plugin_needs_no_spark_to_be_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
