"""The code of docs/guides/eventsourcing_library.md as it stands there."""

import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.clients.steps import unique_name

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "eventsourcing_library.md"


def test_the_code_of_the_guide_runs(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERSISTENCE_MODULE", "KENNEL_MILLSTREAM_TOPIC"):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
    monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    # The library looks for classes where they are defined, and remembers them by that name.
    module = ModuleType(unique_name("kennel_guide").replace("-", "_"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code.replace("kennel.events", unique_name("kennel")), vars(module))
    assert os.environ["PERSISTENCE_MODULE"] == "millstream.eventsourcing.recorders"
