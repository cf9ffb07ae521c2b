"""The connection to Temporal: unencrypted, TLS, mTLS or an API key, for the worker and the command line.

It imports no workflow, so that short commands start fast."""

from dataclasses import dataclass, field
from pathlib import Path

from temporalio.converter import DataConverter
from temporalio.service import TLSConfig

from tenure.controller.temporal.payload_codec import converter_of
from tenure.model.errors import BadInput


@dataclass(frozen=True)
class Security:
    """Their environment variables are those of Temporal's own tools, such as TEMPORAL_TLS_CLIENT_CERT_PATH."""

    tls: bool = False
    api_key: str = field(default="", repr=False)
    api_key_path: str = ""
    """File with the API key. It takes precedence over `api_key`, since a file can be renewed."""
    ca: str = ""
    """PEM files: the CA of the server's certificate, and the client's certificate and key."""
    cert: str = ""
    key: str = field(default="", repr=False)
    server_name: str = ""
    """The name in the server's certificate, if it is not the address."""
    payload_keys: str = ""
    """File with the keys that encrypt payloads; empty for no encryption."""

    def to_environment(self) -> dict[str, str]:
        """The options that are set, as environment variables of the worker, `tenure` and Temporal's own tools."""
        variables = {
            "TEMPORAL_TLS": "true" if self.tls else "",
            "TEMPORAL_API_KEY": self.api_key,
            "TEMPORAL_API_KEY_PATH": self.api_key_path,
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": self.ca,
            "TEMPORAL_TLS_CLIENT_CERT_PATH": self.cert,
            "TEMPORAL_TLS_CLIENT_KEY_PATH": self.key,
            "TEMPORAL_TLS_SERVER_NAME": self.server_name,
            "TEMPORAL_PAYLOAD_KEYS_PATH": self.payload_keys,
        }
        return {name: value for name, value in variables.items() if value}

    def tls_files(self) -> dict[str, str]:
        """Paths of the TLS files, by environment variable."""
        named = {
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": self.ca,
            "TEMPORAL_TLS_CLIENT_CERT_PATH": self.cert,
            "TEMPORAL_TLS_CLIENT_KEY_PATH": self.key,
        }
        return {name: path for name, path in named.items() if path}

    def read_api_key(self) -> str | None:
        """The current API key, if any. Raises `BadInput` for a file without one."""
        if not self.api_key_path:
            return self.api_key or None
        found = (
            (_read("TEMPORAL_API_KEY_PATH", self.api_key_path, "an API key") or b"").decode(errors="replace").strip()
        )
        if not found:
            raise BadInput(f"TEMPORAL_API_KEY_PATH={self.api_key_path}: the file is empty, expected an API key")
        return found

    def data_converter(self) -> DataConverter:
        """The converter of payloads. Raises `BadInput` for an invalid key file."""
        return converter_of(self.payload_keys)

    def tls_config(self) -> TLSConfig | bool:
        """An API key or a TLS file implies TLS, since neither may be sent unencrypted.

        Raises `BadInput` for a certificate without its key or the reverse, and for an unreadable file.
        """
        if bool(self.cert) != bool(self.key):
            missing = "TEMPORAL_TLS_CLIENT_KEY_PATH" if self.cert else "TEMPORAL_TLS_CLIENT_CERT_PATH"
            raise BadInput(f"{missing} is not set: a client certificate requires its key, and vice versa; set both")
        if self.ca or self.cert or self.server_name:
            return TLSConfig(
                server_root_ca_cert=_read("TEMPORAL_TLS_SERVER_CA_CERT_PATH", self.ca),
                domain=self.server_name or None,
                client_cert=_read("TEMPORAL_TLS_CLIENT_CERT_PATH", self.cert),
                client_private_key=_read("TEMPORAL_TLS_CLIENT_KEY_PATH", self.key),
            )
        return self.tls or bool(self.api_key or self.api_key_path)


def why_not(message: str) -> str:
    signs = (
        ("ConnectionRefused", "connection refused"),
        ("dns error", "no such host"),
        ("UnknownIssuer", "its certificate is signed by an unknown authority: set "
         "TEMPORAL_TLS_SERVER_CA_CERT_PATH"),
        ("NotValidForName", "its certificate is for another name: set TEMPORAL_TLS_SERVER_NAME to it"),
        ("CertificateRequired", "it requires a client certificate: set TEMPORAL_TLS_CLIENT_CERT_PATH and "
         "TEMPORAL_TLS_CLIENT_KEY_PATH"),
        ("operation was canceled", "it closed the connection at once: if it requires a client certificate, set "
         "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH"),
        ("InvalidContentType", "it does not use TLS: unset TEMPORAL_TLS, TEMPORAL_API_KEY and the file settings"),
    )  # fmt: skip
    for sign, meaning in signs:
        if sign in message:
            return meaning
    return " ".join(message.split())[:160]


def _read(name: str, path: str, what: str = "PEM") -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"{name}={path}: {error.strerror}; expected a readable file with {what}") from error
