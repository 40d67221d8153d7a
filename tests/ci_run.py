"""The tests as CI runs them: what failed runs once more, alone, to tell a flake from a failure.

    python -m tests.ci_run [pytest's arguments]

The run passes if each failed test passes the second time; the end of the output names each as
`flaky: <test>` with its first traceback, as it is a defect to be fixed all the same. Nothing runs
again where much failed or a file could not be read: that is no accident. `make test` never repeats.
"""

import sys
from collections.abc import Sequence

import pytest

# More than this at once is broken, not unlucky.
FLAKES_MAX = 10


class Failures:
    """What failed in a run of pytest: the first report of each test, by its id."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.has_unread_files = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.texts.setdefault(report.nodeid, f"{report.when}: {report.longreprtext}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.has_unread_files |= report.failed

    @property
    def may_be_flakes(self) -> bool:
        return not self.has_unread_files and 0 < len(self.texts) <= FLAKES_MAX


def run(arguments: Sequence[str]) -> int:
    first, again = Failures(), Failures()
    code = pytest.main([*arguments], plugins=[first])
    if code != pytest.ExitCode.TESTS_FAILED or not first.may_be_flakes:
        return code
    print(f"\n{len(first.texts)} failed: once more, one after the other, with nothing beside them")
    code = pytest.main([*arguments, "-n", "1", *first.texts], plugins=[again])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        for test in (test for test in first.texts if test not in again.texts):
            print(f"\nflaky: {test}\n{first.texts[test]}")
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
