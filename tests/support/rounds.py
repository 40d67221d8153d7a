"""How many rounds of a fault: few in the full run, all in the long one."""

from typing import Any

import pytest


def in_full_and_long(full: int, long: int) -> list[Any]:
    """Seeds from 0 on: the first ones for `make test-full`, the others for `make test-long`."""
    later = [pytest.param(seed, marks=pytest.mark.long) for seed in range(full, long)]
    return [*range(full), *later]
