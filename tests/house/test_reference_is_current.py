"""docs/reference has every path over HTTP and every API of Kafka's, as the code has them today."""

from pathlib import Path

from millstream.broker import api_document
from millstream.broker.handlers import HANDLERS
from millstream.web import document
from millstream.web.operations import OPERATIONS
from millstream.web.problems import KINDS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
HTTP = REFERENCE / "http.md"
KAFKA = REFERENCE / "kafka_apis.md"


def test_the_document_of_http_is_current() -> None:
    current = HTTP.read_text(encoding="utf-8") == document.to_markdown()
    assert current, "run: python -m millstream.web.document > docs/reference/http.md"


def test_the_document_of_kafkas_apis_is_current() -> None:
    current = KAFKA.read_text(encoding="utf-8") == api_document.to_markdown()
    assert current, "run: python -m millstream.broker.api_document > docs/reference/kafka_apis.md"


def test_every_path_and_parameter_is_there() -> None:
    sections = HTTP.read_text(encoding="utf-8").split("\n## ")
    for operation in OPERATIONS:
        heading = f"{operation.method} {operation.path}\n"
        section = next(one for one in sections if one.startswith(heading))
        assert all(f"| `{one.name}` |" in section for one in operation.parameters)


def test_every_problem_is_there() -> None:
    text = HTTP.read_text(encoding="utf-8")
    assert all(f"| `{word}` | {kind.status} |" in text for word, kind in KINDS.items())


def test_every_api_has_a_line_that_says_what_it_does() -> None:
    rows = [row.split(" | ") for row in KAFKA.read_text(encoding="utf-8").splitlines()]
    does = {int(row[1]): row[3] for row in rows if len(row) == 5 and row[1].isdigit()}
    assert does.keys() == HANDLERS.keys()
    assert all(does.values())
