"""Certificates that are made, read, and used between two real ends of TLS."""

import datetime
import ssl
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.broker.security.certificates import (
    FileExists,
    InvalidCertificateName,
    Issued,
    UnreadableAuthority,
    make_ca,
    make_client,
    make_server,
    read_ca,
    write_issued,
    write_test_certificates,
)
from millstream.broker.security.tls import (
    BadTlsFile,
    ClientCertificates,
    ServerTls,
    TlsFiles,
    UnknownCiphers,
    expiry_warnings,
    open_server_tls,
    principal_of,
)

NOW = datetime.datetime.now(datetime.UTC)  # OpenSSL asks the real clock
HOSTS = ["localhost", "127.0.0.1", "::1"]
CA = make_ca("millstream test CA", now=NOW)
SERVER = make_server(CA, "broker", hosts=HOSTS, now=NOW)
CLIENT = make_client(CA, "ada", now=NOW)


def days(count: int) -> datetime.timedelta:
    return datetime.timedelta(days=count)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, issued in (("ca", CA), ("server", SERVER), ("client", CLIENT)):
        write_issued(tmp_path, name, issued)
    return tmp_path


def files(
    folder: Path, name: str = "server", asks: ClientCertificates = ClientCertificates.NONE
) -> TlsFiles:
    return TlsFiles(
        certificate=folder / f"{name}.pem",
        key=folder / f"{name}.key",
        ca=folder / "ca.pem",
        client_certificates=asks,
    )


def open_tls(folder: Path, *, now: datetime.datetime = NOW) -> ServerTls:
    return open_server_tls(files(folder), now=now)


# --- two ends, in memory ----------------------------------------------------------------------


def client_context(folder: Path, *, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if certificate is not None:
        context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
    return context


def has_shaken_hands(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """The server's end after the handshake, and one byte each way."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [ours, theirs]
    for _ in range(10):
        waiting = [end for end in waiting if not has_shaken_hands(end)]
    assert not waiting
    theirs.write(b"x")
    assert ours.read(1) == b"x"
    ours.write(b"y")
    assert theirs.read(1) == b"y"
    return ours


@pytest.mark.parametrize("host", HOSTS)
def test_a_client_that_trusts_the_ca_connects_by_every_host_of_the_certificate(
    folder: Path, host: str
) -> None:
    ours = shake_hands(open_tls(folder).context, client_context(folder), host)
    assert ours.version() == "TLSv1.3"


def test_a_client_refuses_a_host_that_is_not_in_the_certificate(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(open_tls(folder).context, client_context(folder), "elsewhere.example")


def test_a_client_refuses_a_certificate_of_another_ca(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_issued(other, "ca", make_ca("another", now=NOW))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(open_tls(folder).context, client_context(other), "localhost")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(folder: Path, version: ssl.TLSVersion) -> None:
    client = client_context(folder)
    client.minimum_version = client.maximum_version = version
    ours = shake_hands(open_tls(folder).context, client, "localhost")
    cipher = ours.cipher()
    assert cipher is not None
    assert any(kind in cipher[0] for kind in ("GCM", "CHACHA20"))


def test_older_versions_and_weaker_ciphers_are_not(folder: Path) -> None:
    context = open_tls(folder).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    for cipher in context.get_ciphers():
        assert cipher["aead"], cipher["name"]
        assert "ECDHE" in cipher["name"] or cipher["protocol"] == "TLSv1.3"
    client = client_context(folder)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers("ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError):
        shake_hands(context, client, "localhost")


def test_ciphers_can_be_chosen(folder: Path) -> None:
    chosen = replace(files(folder), ciphers="ECDHE-ECDSA-CHACHA20-POLY1305")
    client = client_context(folder)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    ours = shake_hands(open_server_tls(chosen, now=NOW).context, client, "localhost")
    cipher = ours.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"


def test_ciphers_that_do_not_exist_are_an_error(folder: Path) -> None:
    with pytest.raises(UnknownCiphers, match="ROT13"):
        open_server_tls(replace(files(folder), ciphers="ROT13"), now=NOW)


# --- client certificates ----------------------------------------------------------------------


def test_a_required_certificate_names_the_principal(folder: Path) -> None:
    server = open_server_tls(files(folder, asks=ClientCertificates.REQUIRED), now=NOW)
    ours = shake_hands(server.context, client_context(folder, certificate="client"), "localhost")
    shown = ours.getpeercert(binary_form=True)
    assert shown is not None
    assert principal_of(shown) == "User:CN=ada"


def shake_hands_without(folder: Path, asks: ClientCertificates) -> ssl.SSLObject:
    context = open_server_tls(files(folder, asks=asks), now=NOW).context
    return shake_hands(context, client_context(folder), "localhost")


def test_without_one_a_client_is_refused_if_it_is_required(folder: Path) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands_without(folder, ClientCertificates.REQUIRED)


@pytest.mark.parametrize("asks", [ClientCertificates.NONE, ClientCertificates.REQUESTED])
def test_and_served_if_it_is_not(folder: Path, asks: ClientCertificates) -> None:
    assert shake_hands_without(folder, asks).getpeercert(binary_form=True) is None


def test_a_certificate_of_a_server_is_none_of_a_client(folder: Path) -> None:
    server = open_server_tls(files(folder, asks=ClientCertificates.REQUIRED), now=NOW)
    with pytest.raises(ssl.SSLError):
        shake_hands(server.context, client_context(folder, certificate="server"), "localhost")


def test_asking_for_certificates_needs_a_ca(folder: Path) -> None:
    asking = TlsFiles(
        certificate=folder / "server.pem",
        key=folder / "server.key",
        client_certificates=ClientCertificates.REQUIRED,
    )
    with pytest.raises(BadTlsFile, match="no CA is given"):
        open_server_tls(asking, now=NOW)


# --- what can be wrong with files -------------------------------------------------------------


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BadTlsFile, match=f"{name}: no such file"):
        open_tls(folder)


@pytest.mark.parametrize(
    ("name", "problem"), [("server.pem", "no certificate"), ("server.key", "no private key")]
)
def test_a_file_without_what_it_should_have_is_named(folder: Path, name: str, problem: str) -> None:
    (folder / name).write_text("hello")
    with pytest.raises(BadTlsFile, match=f"{name}: {problem}"):
        open_tls(folder)


def test_a_directory_in_place_of_a_file_is_named(folder: Path) -> None:
    (folder / "server.pem").unlink()
    (folder / "server.pem").mkdir()
    with pytest.raises(BadTlsFile, match="cannot be read"):
        open_tls(folder)


def test_a_key_of_another_certificate_is_refused(folder: Path) -> None:
    (folder / "server.key").write_bytes(CLIENT.key_pem)
    with pytest.raises(BadTlsFile, match=r"not the key of the certificate in .*server\.pem"):
        open_tls(folder)


def test_a_key_that_everyone_can_read_is_refused(folder: Path) -> None:
    (folder / "server.key").chmod(0o644)
    with pytest.raises(BadTlsFile, match="chmod 600"):
        open_tls(folder)


def test_a_certificate_that_is_over_is_refused_with_its_date(folder: Path) -> None:
    end = SERVER.certificate.not_valid_after_utc
    with pytest.raises(BadTlsFile, match=f"CN=broker expired on {end:%Y-%m-%d}"):
        open_tls(folder, now=end)
    assert open_tls(folder, now=end - datetime.timedelta(seconds=1)).warnings


def test_a_certificate_that_has_not_begun_is_refused(folder: Path) -> None:
    with pytest.raises(BadTlsFile, match="check the clock"):
        open_tls(folder, now=NOW - days(1))


def test_a_certificate_that_is_soon_over_is_warned_of() -> None:
    path, end = Path("server.pem"), NOW
    assert expiry_warnings(path, end, now=end - days(30)) == []
    [soon] = expiry_warnings(path, end, now=end - days(29))
    assert soon.startswith("server.pem: expires in 29 days")
    [late] = expiry_warnings(path, end, now=end + days(1))
    assert "expired on" in late


# --- what is written --------------------------------------------------------------------------


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    certificate, key = write_issued(tmp_path / "new" / "folder", "server", SERVER)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert b"PRIVATE" not in certificate.read_bytes()


@pytest.mark.parametrize("there", ["server.pem", "server.key"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("precious")
    with pytest.raises(FileExists, match=there):
        write_issued(tmp_path, "server", SERVER)
    assert [path.name for path in tmp_path.iterdir()] == [there]


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x"])
def test_a_name_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidCertificateName):
        write_issued(tmp_path, name, SERVER)


def test_the_authority_can_be_read_back_and_goes_on_issuing(folder: Path) -> None:
    again: Issued = read_ca(folder)
    write_issued(folder, "second", make_server(again, "second", hosts=["localhost"], now=NOW))
    server = open_server_tls(files(folder, "second"), now=NOW)
    assert shake_hands(server.context, client_context(folder), "localhost").version()


def test_one_call_makes_all_that_a_first_try_needs(tmp_path: Path) -> None:
    made = write_test_certificates(tmp_path, hosts=["localhost"], clients=["client"], now=NOW)
    names = ["ca.key", "ca.pem", "client.key", "client.pem", "server.key", "server.pem"]
    assert sorted(path.name for path in made) == names
    server = open_server_tls(files(tmp_path, asks=ClientCertificates.REQUIRED), now=NOW)
    client = client_context(tmp_path, certificate="client")
    assert shake_hands(server.context, client, "localhost").version()


def test_a_second_call_uses_the_authority_that_is_there(folder: Path) -> None:
    before = (folder / "ca.pem").read_bytes()
    made = write_test_certificates(folder, hosts=[], clients=["bob"], now=NOW)
    assert [path.name for path in made] == ["bob.pem", "bob.key"]
    assert (folder / "ca.pem").read_bytes() == before


@pytest.mark.parametrize("wrong", [b"", CLIENT.key_pem, None])
def test_half_an_authority_is_refused(folder: Path, wrong: bytes | None) -> None:
    (folder / "ca.key").unlink()
    if wrong is not None:
        (folder / "ca.key").write_bytes(wrong)
    with pytest.raises(UnreadableAuthority, match="choose another directory"):
        write_test_certificates(folder, hosts=[], clients=["bob"], now=NOW)
    assert not (folder / "bob.pem").exists()


@pytest.mark.parametrize(("name", "hosts"), [("", ["a"]), ("x" * 65, ["a"]), ("broker", [])])
def test_a_certificate_needs_a_name_and_a_server_its_hosts(name: str, hosts: list[str]) -> None:
    with pytest.raises(InvalidCertificateName):
        make_server(CA, name, hosts=hosts, now=NOW)
