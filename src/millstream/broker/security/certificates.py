"""A certificate authority for tests and for a first try: what `millstream certs` makes.

    ca.pem, ca.key            the authority; clients trust ca.pem (ssl.ca.location)
    <name>.pem, <name>.key    a server's or a client's certificate, and its key

Keys are readable by their owner only and are never overwritten. The authority has no revocation and
its key no password: for anything that matters, take certificates from elsewhere; `tls.py` does not
care where they come from. Writes files, opens no connection.
"""

import contextlib
import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from millstream.base.errors import Rejected

CA_DAYS = 3_650
CERTIFICATE_DAYS = 365
# A machine whose clock is a little late must not refuse a new certificate.
BACKDATED = datetime.timedelta(hours=1)
SECRET_MODE = 0o600
DIRECTORY_MODE = 0o700
COMMON_NAME_LENGTH_MAX = 64  # of X.520

PrivateKey = ec.EllipticCurvePrivateKey


class FileExists(Rejected):
    def __init__(self, *, path: Path) -> None:
        super().__init__(f"{path} is there already and is not overwritten; choose another name")
        self.path = path


class InvalidCertificateName(Rejected):
    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"certificate name {name[:100]!r}: {reason}")
        self.name, self.reason = name, reason


class UnreadableAuthority(Rejected):
    def __init__(self, *, directory: Path, reason: str) -> None:
        super().__init__(
            f"{directory}: ca.pem and ca.key there are not a usable authority ({reason}); choose "
            "another directory"
        )
        self.directory, self.reason = directory, reason


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


# --- making -----------------------------------------------------------------------------------


def make_ca(name: str, *, now: datetime.datetime, days: int = CA_DAYS) -> Issued:
    key = _new_key()
    subject = _subject(name)
    builder = _builder(subject, subject, key, now=now, days=days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(is_ca=True), critical=True)
    return Issued(builder.sign(key, hashes.SHA256()), key)


def make_server(
    ca: Issued,
    name: str,
    *,
    hosts: Sequence[str],
    now: datetime.datetime,
    days: int = CERTIFICATE_DAYS,
) -> Issued:
    """`hosts` are the names and addresses that clients connect to: they check them."""
    if not hosts:
        raise InvalidCertificateName(name=name, reason="a server needs at least one host")
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    return _issue(ca, name, ExtendedKeyUsageOID.SERVER_AUTH, names, now=now, days=days)


def make_client(
    ca: Issued, name: str, *, now: datetime.datetime, days: int = CERTIFICATE_DAYS
) -> Issued:
    """Its principal on a listener that asks for certificates is `User:CN=<name>`."""
    return _issue(ca, name, ExtendedKeyUsageOID.CLIENT_AUTH, None, now=now, days=days)


def _issue(
    ca: Issued,
    name: str,
    purpose: x509.ObjectIdentifier,
    names: x509.SubjectAlternativeName | None,
    *,
    now: datetime.datetime,
    days: int,
) -> Issued:
    key = _new_key()
    builder = _builder(_subject(name), ca.certificate.subject, key, now=now, days=days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(_key_usage(is_ca=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key())
    builder = builder.add_extension(issuer_key, critical=False)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return Issued(builder.sign(ca.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    *,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _new_key() -> PrivateKey:
    """P-256: every client has it, and a handshake costs a fraction of one with RSA."""
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> x509.Name:
    if not 0 < len(name) <= COMMON_NAME_LENGTH_MAX:
        reason = f"1 to {COMMON_NAME_LENGTH_MAX} characters are allowed"
        raise InvalidCertificateName(name=name, reason=reason)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    try:
        return x509.DNSName(host.encode("idna").decode())
    except UnicodeError:
        raise InvalidCertificateName(name=host, reason="not a host name") from None


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


# --- files ------------------------------------------------------------------------------------


def write_issued(directory: Path, name: str, issued: Issued) -> tuple[Path, Path]:
    """`<name>.pem` and `<name>.key`, if neither is there yet."""
    if name != Path(name).name or name in ("", ".", ".."):
        raise InvalidCertificateName(name=name, reason="it must be a plain file name")
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    certificate_path, key_path = directory / f"{name}.pem", directory / f"{name}.key"
    for path in (certificate_path, key_path):
        if path.exists():
            raise FileExists(path=path)
    _write_new(key_path, issued.key_pem, SECRET_MODE)
    _write_new(certificate_path, issued.certificate_pem, 0o644)
    return certificate_path, key_path


def read_ca(directory: Path) -> Issued:
    """The authority that `write_issued(directory, "ca", ...)` wrote."""
    certificate_path, key_path = directory / "ca.pem", directory / "ca.key"
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableAuthority(directory=directory, reason=str(error)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UnreadableAuthority(directory=directory, reason="its key is of another kind")
    if key.public_key() != certificate.public_key():
        raise UnreadableAuthority(directory=directory, reason="ca.key is not the key of ca.pem")
    return Issued(certificate, key)


def write_test_certificates(
    directory: Path,
    *,
    hosts: Sequence[str],
    clients: Sequence[str] = (),
    now: datetime.datetime,
) -> list[Path]:
    """An authority, a server with these hosts, and clients: all that `millstream certs` makes.

    An authority that is there already goes on issuing; its certificates stay trusted.
    """
    written: list[Path] = []
    if (directory / "ca.pem").exists() or (directory / "ca.key").exists():
        ca = read_ca(directory)
    else:
        ca = make_ca("millstream test CA", now=now)
        written += write_issued(directory, "ca", ca)
    if hosts:
        server = make_server(ca, hosts[0][:COMMON_NAME_LENGTH_MAX], hosts=hosts, now=now)
        written += write_issued(directory, "server", server)
    for name in clients:
        written += write_issued(directory, name, make_client(ca, name, now=now))
    return written


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Never readable by others, not even while it is written; never over an existing file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise FileExists(path=path) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
