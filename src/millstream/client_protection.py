"""How a client protects its connection: TLS and the login, from the settings, for librdkafka.

The commands and `App` use the same. It connects to nobody.
"""

import ssl
from pathlib import Path
from typing import Any

from millstream.base.errors import Rejected
from millstream.passwords import password_of
from millstream.settings import ClientSettings


class BadTlsFile(Rejected):
    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


def _check_tls_files(settings: ClientSettings) -> None:
    """librdkafka would name neither the file nor what is wrong with it."""
    context = ssl.create_default_context()
    path = settings.tls_ca
    try:
        if path is not None:
            context.load_verify_locations(path)
        if settings.tls_certificate is not None:
            path = settings.tls_certificate
            context.load_cert_chain(path, settings.tls_key)
    except ssl.SSLError as error:
        reason = f"not usable for TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
        raise BadTlsFile(path=path or Path(), reason=reason) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadTlsFile(path=path or Path(), reason=reason) from None


def protection_config(settings: ClientSettings) -> dict[str, Any]:
    """TLS and the login, in librdkafka's words."""
    if settings.uses_tls:
        _check_tls_files(settings)
    protocol = "SSL" if settings.uses_tls else "PLAINTEXT"
    config: dict[str, Any] = {
        "security.protocol": f"SASL_{protocol}" if settings.user else protocol,
        "ssl.ca.location": settings.tls_ca,
        "ssl.certificate.location": settings.tls_certificate,
        "ssl.key.location": settings.tls_key,
    }
    if settings.user:
        config |= {
            "sasl.mechanism": settings.sasl_mechanism,
            "sasl.username": settings.user,
            "sasl.password": password_of(settings.user, settings.password_file),
        }
    return {name: str(value) for name, value in config.items() if value is not None}
