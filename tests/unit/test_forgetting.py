"""What an application says about whom to forget."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millstream.eventsourcing.personal import BadSubject
from millstream.forgetting import Forgetting


def _nothing_is_asked() -> Mapping[str, Any]:
    raise AssertionError("no keyring is opened for it")


@pytest.mark.parametrize("subjects", ["ad", b"ad"])
def test_a_text_is_not_taken_for_a_list_of_its_letters(tmp_path: Path, subjects: Any) -> None:
    shop = Forgetting(app="shop", data=tmp_path, keyring=None, client_config=_nothing_is_asked)
    for use in (shop.forget, shop.look):
        with pytest.raises(BadSubject, match="give a list of subjects"):
            use(subjects)
