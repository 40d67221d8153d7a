import contextlib
from pathlib import Path

import pytest

from millstream.base.quantity import (
    DAY_MS,
    GIB,
    HOUR_MS,
    MIB,
    MINUTE_MS,
    format_duration_ms,
    format_duration_roughly,
    format_size,
    format_whole_size,
    parse_duration_ms,
    parse_size,
)
from millstream.setting_kinds import Address, parse_addresses
from millstream.settings import (
    TABLES,
    BadConfigFile,
    BadSetting,
    BrokerSettings,
    ClientSettings,
    ConfigFile,
    SettingsConflict,
    SparkSettings,
    load,
    read_config_file,
    settings_of,
    unknown_variables,
)

NO_FILE = ConfigFile()


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("512", 512), ("64MiB", 64 * MIB), ("1.5 GiB", 3 * GIB // 2), ("10MB", 10**7)],
)
def test_a_size_is_read_as_people_write_it(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MiB", "-1", "64 furlongs", "1MiB 2KiB", "1e400MiB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("250", 250),
        ("7d", 7 * DAY_MS),
        ("1h 30m", 5_400_000),
        ("1h30m", 5_400_000),
        ("2w", 14 * DAY_MS),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "d", "-1", "7 lightyears", "1h nonsense"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_ms(text)


@pytest.mark.parametrize("number", [0, 1, 999, 1024, MIB + 12, 3 * GIB, 90_061_001])
def test_what_is_written_is_read_back(number: int) -> None:
    assert parse_size(format_size(number)) == number
    assert parse_duration_ms(format_duration_ms(number)) == number


def test_a_rough_duration_has_two_units_at_most() -> None:
    assert format_duration_roughly(3 * HOUR_MS + 12 * MINUTE_MS + 5_004) == "3h 12m"
    assert format_duration_roughly(59_999) == "59s"
    assert format_duration_roughly(12) == "12ms"


def test_a_size_for_reading_is_in_whole_units() -> None:
    sizes = (0, 1_023, 41_000, 600 * MIB + 7, 18 * GIB + MIB)
    assert [format_whole_size(one) for one in sizes] == ["0B", "0B", "40KiB", "600MiB", "18GiB"]


def test_several_brokers_are_separated_by_commas() -> None:
    assert parse_addresses("a:1, [::1]:9092") == (Address("a", 1), Address("::1", 9092))
    assert str(Address("::1", 9092)) == "[::1]:9092"


@pytest.mark.parametrize("text", ["", "host", "host:", "host:65536", "a:1,", "http://a:1", "a:0"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="brokers"):
        load(ClientSettings, options={"brokers": text}, env={}, file=NO_FILE)


def test_without_anything_the_defaults_hold() -> None:
    assert load(BrokerSettings, env={}, file=NO_FILE) == BrokerSettings()


def test_the_nearest_source_wins() -> None:
    file = ConfigFile(tables={"broker": {"segment_bytes": "1MiB"}})
    env = {"MILLSTREAM_BROKER_SEGMENT_BYTES": "2MiB"}
    options = {"segment_bytes": "3MiB"}
    assert load(BrokerSettings, options=options, env=env, file=file).segment_bytes == 3 * MIB
    assert load(BrokerSettings, options={}, env=env, file=file).segment_bytes == 2 * MIB
    assert load(BrokerSettings, options={}, env={}, file=file).segment_bytes == MIB


@pytest.mark.parametrize("given", [True, "yes", "on", 1])
def test_a_switch_is_read_from_toml_and_from_text(given: object) -> None:
    file = ConfigFile(tables={"broker": {"auto_create_topics": given}})
    assert load(BrokerSettings, env={}, file=file).auto_create_topics is True


def test_no_limit_has_a_word() -> None:
    env = {
        "MILLSTREAM_BROKER_RETENTION_MS": "forever",
        "MILLSTREAM_BROKER_RETENTION_BYTES": "unlimited",
    }
    settings = load(BrokerSettings, env=env, file=NO_FILE)
    assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)


def test_a_bad_value_is_told_with_its_origin_and_what_is_allowed() -> None:
    with pytest.raises(BadSetting) as caught:
        load(BrokerSettings, env={"MILLSTREAM_BROKER_SEGMENT_BYTES": "12"}, file=NO_FILE)
    assert str(caught.value) == (
        "segment_bytes: '12' from MILLSTREAM_BROKER_SEGMENT_BYTES is not allowed. "
        "Give a size such as 64MiB, at least 1MiB, at most 2147483647B"
    )


@pytest.mark.parametrize("given", [1.5, ["1MiB"], {"a": 1}, float("nan")])
def test_a_value_of_another_toml_type_is_refused(given: object) -> None:
    file = ConfigFile(tables={"broker": {"segment_bytes": given}})
    with pytest.raises(BadSetting, match=r"\[broker\] in millstream.toml"):
        load(BrokerSettings, env={}, file=file)


@pytest.mark.parametrize(("value", "is_allowed"), [("1MiB", True), ("1048575", False)])
def test_a_limit_holds_at_the_limit_and_not_one_past_it(value: str, is_allowed: bool) -> None:
    options = {"segment_bytes": value}
    if is_allowed:
        load(BrokerSettings, options=options, env={}, file=NO_FILE)
    else:
        with pytest.raises(BadSetting):
            load(BrokerSettings, options=options, env={}, file=NO_FILE)


def test_a_message_larger_than_its_request_is_a_conflict() -> None:
    with pytest.raises(SettingsConflict, match="frame_bytes_max"):
        load(BrokerSettings, options={"frame_bytes_max": "1MiB"}, env={}, file=NO_FILE)


@pytest.mark.parametrize("rules", [{"super_users": "User:ada"}, {"allow_without_acl": "true"}])
@pytest.mark.parametrize(
    ("others", "is_fine"),
    [
        ({}, False),
        ({"authorization": "off"}, True),
        ({"authorization": "on"}, True),
        ({"sasl": "SCRAM-SHA-256"}, True),
    ],
)
def test_who_is_bound_by_no_rules_cannot_be_freed_from_them(
    rules: dict[str, str], others: dict[str, str], is_fine: bool
) -> None:
    expected = (
        contextlib.nullcontext() if is_fine else pytest.raises(SettingsConflict, match="rules")
    )
    with expected:
        load(BrokerSettings, options=rules | others, env={}, file=NO_FILE)


def test_the_file_is_found_by_its_environment_variable(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text('[broker]\nretention_ms = "30d"\n')
    env = {"MILLSTREAM_CONFIG": str(path)}
    assert load(BrokerSettings, env=env).retention_ms == 30 * DAY_MS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[broker]\nretention = 1", "Did you mean retention_ms"),
        ("[brokr]\n", "Did you mean broker"),
        ("broker = 1", "no table"),
        ("[broker", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_told(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "millstream.toml"
    path.write_text(text)
    with pytest.raises(BadConfigFile, match=problem):
        read_config_file({"MILLSTREAM_CONFIG": str(path)})


def test_a_named_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadConfigFile, match="no such file"):
        read_config_file({"MILLSTREAM_CONFIG": str(tmp_path / "none.toml")})


def test_every_default_is_allowed_and_reads_back() -> None:
    for table in TABLES:
        for item in settings_of(table):
            assert item.kind.parse(item.default_text) == item.default, item.name


def test_the_client_asks_where_the_broker_listens() -> None:
    assert ClientSettings().brokers == (BrokerSettings().listen,)


def test_a_misspelt_variable_is_told_with_the_nearest_name() -> None:
    (line,) = unknown_variables({"MILLSTREAM_BROKER_SEGMENT_BYTE": "1GiB", "PATH": "/bin"})
    assert "MILLSTREAM_BROKER_SEGMENT_BYTE is set" in line
    assert line.endswith("Did you mean MILLSTREAM_BROKER_SEGMENT_BYTES?")


def test_a_variable_that_is_near_to_nothing_is_told_too() -> None:
    (line,) = unknown_variables({"MILLSTREAM_XYZ": "1"})
    assert line == "MILLSTREAM_XYZ is set, and no setting: docs/settings.md has them all."


def test_of_the_variables_of_settings_nothing_is_said() -> None:
    known = [item.env for table in TABLES for item in settings_of(table)]
    assert unknown_variables(dict.fromkeys(["MILLSTREAM_CONFIG", *known], "")) == []


def test_spark_is_set_by_one_variable_and_told_its_own_settings() -> None:
    env = {
        "MILLSTREAM_SPARK": "spark://127.0.0.1:7077",
        "MILLSTREAM_SPARK_CONF": "spark.driver.memory=4g; spark.sql.shuffle.partitions = 8",
    }
    settings = load(SparkSettings, env=env, file=NO_FILE)
    assert settings.master == "spark://127.0.0.1:7077"
    assert dict(settings.conf) == {
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "8",
    }


@pytest.mark.parametrize("text", ["spark.driver.memory", "=4g", "a=1;b"])
def test_a_setting_of_spark_without_a_value_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="NAME=VALUE"):
        load(SparkSettings, env={"MILLSTREAM_SPARK_CONF": text}, file=NO_FILE)


def test_a_setting_is_written_as_it_is_read() -> None:
    [conf] = [item for item in settings_of(SparkSettings) if item.name == "conf"]
    text = "a=1;b=2"
    assert conf.kind.format(conf.kind.parse(text)) == text
    assert conf.kind.parse(conf.kind.format(())) == ()
