from pathlib import Path

import pytest

from millstream import App, stores
from millstream.commands.http_terms import private_folders
from millstream.web.private_paths import path_patterns, without_code_directories, without_paths

FOLDERS = ("shop.millstream", "shop.millstream.keyring", "data", "click_counts", "lakes/of shop")
PATTERNS = path_patterns([*FOLDERS, "/srv/my shop", ".", "/"], roots=["srv", "tmp"])


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
        ("lakes/of shop is gone", "(a path of the server) is gone"),
        ("click_counts/a.parquet is gone", "(a path of the server) is gone"),
        ("shop.millstream.keyring is gone", "(a path of the server) is gone"),
        ("no such file: '/srv/other shop/a.db'", "no such file: '(a path of the server)'"),
        (
            "from '/srv/a b' to '/tmp/c'",
            "from '(a path of the server)' to '(a path of the server)'",
        ),
    ],
)
def test_a_path_is_taken_out(text: str, told: str) -> None:
    assert without_paths(text, PATTERNS) == told


@pytest.mark.parametrize(
    "text",
    [
        "the data does not fit",
        "no view 'click_counts' (there are: clicks)",
        "no view '/about/us' (there are: clicks)",
        "GET /v1/views: not found",
        "http://localhost:8080/tmp/x and s3://bucket/srv/x",
        "my.data/x",
    ],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert without_paths(text, PATTERNS) == text


def test_of_the_code_of_an_application_the_file_and_line_stay() -> None:
    error = "job clicks failed: no price (at /srv/my shop/shop.py:53), on clicks[0]@7"
    assert without_code_directories(error) == (
        "job clicks failed: no price (at shop.py:53), on clicks[0]@7"
    )
    for text in ("(at shop.py:53)", "(at 12:03:07)", "read at /srv/a:1"):
        assert without_code_directories(text) == text


def test_the_places_of_stores_and_keys_are_private_as_they_were_given_and_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my machine").mkdir()
    monkeypatch.chdir(tmp_path / "my machine")
    app = App("shop", data="data", keyring="./kept keys")
    app.topic("clicks", schema="url STRING")
    app.view(key="url", name="one", store=stores.Parquet("lake"))(lambda clicks: clicks)
    app.view(key="url", name="two", store=stores.Delta("s3://bucket/lake"))(lambda clicks: clicks)
    patterns = path_patterns(private_folders(app), roots=[])
    for text in (
        f"{tmp_path}/my machine/lake/one/manifest.json is gone",
        f"{tmp_path}/my machine/data is gone",
        f"{tmp_path}/my machine/shop.py is gone",
        "lake/one is gone",
        "data/views/x.sqlite is gone",
        "./kept keys is gone",
        "kept keys is gone",
    ):
        assert without_paths(text, patterns) == "(a path of the server) is gone"
    assert without_paths("s3://bucket/lake is gone", patterns) == "s3://bucket/lake is gone"
    beside = App("shop", data="data.shop")
    beside_patterns = path_patterns(private_folders(beside), roots=[])
    told = without_paths("data.shop.keyring is gone", beside_patterns)
    assert told == "(a path of the server) is gone"
