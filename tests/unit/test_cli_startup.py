import subprocess
import sys

# Each costs more than the whole of `millstream --help`.
HEAVY = ("confluent_kafka", "rich", "uvloop", "asyncio", "millstream.broker", "millstream.app")


def test_the_command_starts_without_what_only_some_commands_need() -> None:
    code = "import sys, millstream.cli; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not set(HEAVY) & set(loaded.stdout.split())
