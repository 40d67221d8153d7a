import pytest

from millstream.web.private_paths import path_patterns, without_paths

PATTERNS = path_patterns(["shop.millstream", "data", "/srv/my shop"], roots=["srv", "tmp"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/srv/a/b.sqlite: not a database", "(a path of the server): not a database"),
        ("cannot open 'file:///tmp/a.db?mode=rw'", "cannot open '(a path of the server)'"),
        ("(/tmp/a, /tmp/b)", "((a path of the server), (a path of the server))"),
        ("shop.millstream is in use", "(a path of the server) is in use"),
        ("shop.millstream/views/a.sqlite is gone", "(a path of the server) is gone"),
        ("data/views/a.sqlite is gone", "(a path of the server) is gone"),
        ("/srv/my shop/views is gone", "(a path of the server) is gone"),
    ],
)
def test_a_path_is_taken_out(text: str, told: str) -> None:
    assert without_paths(text, PATTERNS) == told


@pytest.mark.parametrize(
    "text",
    [
        "the data does not fit",
        "no view '/about/us' (there are: clicks)",
        "GET /v1/views: not found",
        "http://localhost:8080/tmp/x and s3://bucket/srv/x",
        "my.data/x",
    ],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert without_paths(text, PATTERNS) == text
