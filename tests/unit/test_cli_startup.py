import os
import subprocess
import sys

# Each costs more than the whole of `millstream --help`.
HEAVY = (
    "confluent_kafka",
    "pyarrow",
    "rich",
    "uvloop",
    "asyncio",
    "prometheus_client",
    "millstream.broker",
    "millstream.running",
    "millstream.archive",
)


def test_the_command_starts_without_what_only_some_commands_need() -> None:
    code = "import sys, millstream.cli; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not set(HEAVY) & set(loaded.stdout.split())


def test_a_broker_without_metrics_starts_without_their_library() -> None:
    code = "import sys, millstream.broker.server; print('prometheus_client' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert loaded.stdout == b"False\n"


def test_ctrl_c_during_the_imports_is_quiet() -> None:
    """The import of `millstream.cli` is stood in for by one that is interrupted."""
    code = """
import signal, sys, importlib.abc
import millstream.__main__

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "millstream.cli":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
millstream.__main__.main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_a_variable_that_sets_nothing_is_told_once() -> None:
    command = [sys.executable, "-m", "millstream", "topics", "list", "--help"]
    env = os.environ | {"MILLSTREAM_BROKER": "localhost:9092"}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert ended.stderr == (
        "millstream: MILLSTREAM_BROKER is set, and no setting. Did you mean MILLSTREAM_BROKERS?\n"
    )
