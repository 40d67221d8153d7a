"""The code of docs/guides/exactly_once.md, as it stands there."""

import re
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.clients.steps import Sent, create_topic, produce, unique_name

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "exactly_once.md"


def test_the_code_of_the_guide_counts_what_it_reads(bootstrap: str, admin: AdminClient) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    [code] = [block for block in blocks if "init_transactions" in block]  # jobs: tests/spark
    clicks, counts = unique_name("clicks"), unique_name("counts")
    for name in (clicks, counts):
        create_topic(admin, name)
    produce(bootstrap, clicks, [Sent(key=user, value=b"/") for user in (b"ada", b"ada", b"grace")])
    names = {'"clicks"]': f'"{clicks}"]', '"counts"': f'"{counts}"', '"counter': f'"{clicks}'}
    for old, new in names.items():
        assert old in code
        code = code.replace(old, new)
    space: dict[str, object] = {"BOOTSTRAP": bootstrap}
    exec(code, space)
    consumer = space["consumer"]
    committed = consumer.committed(consumer.assignment())  # type: ignore[attr-defined]
    assert [place.offset for place in committed] == [3]
    consumer.close()  # type: ignore[attr-defined]
