"""A store whose library is not installed says how to get it, when it is used and not before."""

import subprocess
import sys

import pytest

USE_WITHOUT = """
import sys
sys.modules[{library!r}] = None
from millstream import stores
from millstream.base.errors import Rejected
try:
    stores.{choice}
except Rejected as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("choice", "library", "extra"),
    [("Delta", "deltalake", "delta"), ("SearchIndex", "tantivy", "search")],
)
def test_a_missing_library_is_told_with_its_extra(choice: str, library: str, extra: str) -> None:
    text = USE_WITHOUT.format(library=library, choice=choice)
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert f"{library} is not installed: run `pip install 'millstream[{extra}]'`" in told.stdout
