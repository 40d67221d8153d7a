"""From certificate files to an SSLContext, or to an error that says which file to look at.

TLS 1.2 and 1.3, ciphers with forward secrecy and authenticated encryption only. Checks what OpenSSL
would only show to the first client: a key of another certificate, a certificate that is over. Reads
files; opens no connection and makes no certificate (`certificates.py`).
"""

import datetime
import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from millstream.base.errors import Rejected

# Of TLS 1.2; those of 1.3 are all of this kind.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!eNULL"
WARNING_DAYS = 30
# Owner and group may have rights to a private key, others none; as OpenSSH and PostgreSQL ask.
FORBIDDEN_KEY_MODE = 0o007


class ClientCertificates(Enum):
    """Kafka's ssl.client.auth."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


VERIFY_MODES = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.REQUESTED: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """`certificate` may be a chain, the server's own first. `ca` checks clients."""

    certificate: Path
    key: Path
    ca: Path | None = None
    client_certificates: ClientCertificates = ClientCertificates.NONE
    ciphers: str = CIPHERS  # of TLS 1.2, in OpenSSL's words


class BadTlsFile(Rejected):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class UnknownCiphers(Rejected):
    def __init__(self, *, ciphers: str) -> None:
        super().__init__(f"OpenSSL knows no cipher of {ciphers!r}; `openssl ciphers` lists them")
        self.ciphers = ciphers


@dataclass(frozen=True, slots=True)
class ServerTls:
    context: ssl.SSLContext
    expires: datetime.datetime
    warnings: list[str]


def open_server_tls(files: TlsFiles, *, now: datetime.datetime) -> ServerTls:
    """The context of a listener, its end, and what should be said about it now."""
    chain = _read_certificates(files.certificate)
    _check_key(files, chain[0])
    expires = min(each.not_valid_after_utc for each in chain)
    _check_period(files.certificate, chain, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _set_ciphers(context, files.ciphers)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load_chain(context, files)
    _ask_clients(context, files, now)
    return ServerTls(context, expires, expiry_warnings(files.certificate, expires, now=now))


def expiry_warnings(path: Path, expires: datetime.datetime, *, now: datetime.datetime) -> list[str]:
    """For the start, and for a chore that looks once a day."""
    left = expires - now
    if left >= datetime.timedelta(days=WARNING_DAYS):
        return []
    if left < datetime.timedelta():
        return [f"{path}: expired on {expires:%Y-%m-%d %H:%M} UTC; clients refuse it"]
    return [f"{path}: expires in {left.days} days, on {expires:%Y-%m-%d %H:%M} UTC; renew it"]


def principal_of(certificate_der: bytes) -> str:
    """Who a client certificate is for, as Kafka names it: `User:CN=ada,O=shop`."""
    subject = x509.load_der_x509_certificate(certificate_der).subject
    return f"User:{subject.rfc4514_string()}"


# --- checks -----------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BadTlsFile(path=path, problem="no such file") from None
    except OSError as error:
        raise BadTlsFile(path=path, problem=f"cannot be read: {error.strerror}") from None


def _read_certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError:
        raise BadTlsFile(path=path, problem="no certificate in PEM format in it") from None


def _check_key(files: TlsFiles, certificate: x509.Certificate) -> None:
    content = _read(files.key)
    if files.key.stat().st_mode & FORBIDDEN_KEY_MODE:
        problem = "this private key is open to every user of the machine; chmod 600 it"
        raise BadTlsFile(path=files.key, problem=problem)
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise BadTlsFile(path=files.key, problem="the key has a password; remove it") from None
    except ValueError:
        raise BadTlsFile(path=files.key, problem="no private key in PEM format in it") from None
    if _public_bytes(key.public_key()) != _public_bytes(certificate.public_key()):
        problem = f"this is not the key of the certificate in {files.certificate}"
        raise BadTlsFile(path=files.key, problem=problem)


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _check_period(path: Path, chain: list[x509.Certificate], now: datetime.datetime) -> None:
    for certificate in chain:
        name = certificate.subject.rfc4514_string()
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if now >= ends:
            problem = f"the certificate of {name} expired on {ends:%Y-%m-%d %H:%M} UTC; renew it"
            raise BadTlsFile(path=path, problem=problem)
        if now < begins:
            problem = f"the certificate of {name} begins on {begins:%Y-%m-%d %H:%M} UTC only"
            raise BadTlsFile(path=path, problem=f"{problem}; check the clock")


def _set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        raise UnknownCiphers(ciphers=ciphers) from None


def _load_chain(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_cert_chain(files.certificate, files.key)
    except ssl.SSLError as error:  # the files are there and fit: OpenSSL has its own reasons
        problem = f"OpenSSL does not take it: {error.reason or error}"
        raise BadTlsFile(path=files.certificate, problem=problem) from None


def _ask_clients(context: ssl.SSLContext, files: TlsFiles, now: datetime.datetime) -> None:
    asks = files.client_certificates is not ClientCertificates.NONE
    if asks and files.ca is None:
        problem = f"client certificates are {files.client_certificates.value}, and no CA is given"
        raise BadTlsFile(path=files.certificate, problem=problem)
    if asks and files.ca is not None:
        _check_period(files.ca, _read_certificates(files.ca), now)
        context.load_verify_locations(files.ca)
    context.verify_mode = VERIFY_MODES[files.client_certificates]
