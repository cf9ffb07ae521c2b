"""The connection to Temporal: which settings imply TLS, which files belong together, and handshake errors."""

from pathlib import Path

import pytest
from temporalio.service import TLSConfig

from tenure.controller.temporal.connection import Security, why_not
from tenure.model.errors import BadInput


def test_api_key_implies_tls_and_default_is_plain() -> None:
    assert Security().tls_config() is False
    assert Security(tls=True).tls_config() is True
    assert Security(api_key="secret").tls_config() is True


def test_mtls_files_are_read_and_imply_tls(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    files = {name: str(tmp_path / name) for name in ("ca", "cert", "key")}
    found = Security(server_name="temporal.internal", ca=files["ca"], cert=files["cert"], key=files["key"]).tls_config()
    assert found == TLSConfig(
        server_root_ca_cert=b"ca", client_cert=b"cert", client_private_key=b"key", domain="temporal.internal"
    )


@pytest.mark.parametrize(
    ("settings", "missing"),
    [({"cert": "a"}, "TEMPORAL_TLS_CLIENT_KEY_PATH"), ({"key": "a"}, "TEMPORAL_TLS_CLIENT_CERT_PATH")],
)
def test_certificate_without_key_or_vice_versa_names_the_missing_setting(
    settings: dict[str, str], missing: str
) -> None:
    with pytest.raises(BadInput, match=missing):
        Security(**settings).tls_config()  # type: ignore[arg-type]


def test_unreadable_file_is_named_with_its_variable() -> None:
    with pytest.raises(BadInput, match=r"TEMPORAL_TLS_SERVER_CA_CERT_PATH=/nowhere: No such file.*PEM"):
        Security(ca="/nowhere").tls_config()


def test_repr_contains_no_secret() -> None:
    assert "secret" not in repr(Security(api_key="secret", tls=True))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("transport error: ConnectionRefused", "connection refused"),
        ("invalid peer certificate: UnknownIssuer", "TEMPORAL_TLS_SERVER_CA_CERT_PATH"),
        ("received corrupt message of type InvalidContentType", "does not use TLS"),
    ],
)
def test_transport_error_becomes_advice(error: str, expected: str) -> None:
    assert expected in why_not(error)


def test_cancelled_handshake_suggests_a_client_certificate() -> None:
    error = 'Status { code: Cancelled, message: "operation was canceled", source: Some(tonic::transport::Error) }'
    assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in why_not(error)
