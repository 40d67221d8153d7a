"""Every relative link and every bench file that a document names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:bench|tests|src|docs|codegen|examples)/[\w./-]+\.\w+)(?:::\w+)?`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_is_there(document: Path) -> None:
    text = document.read_text()
    targets = [document.parent / link for link in LINK.findall(text)]
    targets += [ROOT / name for name in FILE.findall(text)]
    assert [str(target) for target in targets if not target.exists()] == []
