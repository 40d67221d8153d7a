"""The code of docs/guides/forgetting.md as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "forgetting.md"


def test_the_code_of_the_guide_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    space: dict[str, Any] = {"__name__": "guide"}
    exec("\n".join(blocks), space)
    said = capsys.readouterr().out.splitlines()
    report = said.index("why       asked by letter")
    assert said[0] == "ada@example.com"
    assert said[1].startswith("{'user': 'ada', 'email': 'sealed:1:")
    assert said[2] == "{'user': 'ada', 'email': 'ada@example.org', 'plan': 'free'}"
    assert said[report + 1] == "events    2 with sealed values, in 1 stream"
    after = said[said.index("(forgotten)") :]
    assert after[:4] == [
        "(forgotten)",
        "1",
        "bob@example.org",
        "{'user': 'ada', 'email': (forgotten), 'plan': 'free'}",
    ]
    assert after[4].startswith("refused: subject ")
    assert after[5:] == ["ada@example.net", "(forgotten)"]
    assert (tmp_path / "shop.millstream.keyring").stat().st_mode & 0o777 == 0o700
    space["test_a_member_who_was_forgotten_keeps_the_plan_and_can_move"]()
