"""Ports of concurrent sandboxes."""

import socket
import tempfile
from pathlib import Path

import pytest

from tenure.sandbox.errors import NoPort
from tenure.sandbox.ports import FIRST, LAST, Ports


def test_two_sandboxes_get_different_ports(tmp_path: Path) -> None:
    one, other = Ports(tmp_path), Ports(tmp_path)
    taken = [ports.reserve() for _ in range(50) for ports in (one, other)]
    assert len(set(taken)) == len(taken)
    assert all(FIRST <= port < LAST for port in taken)


def test_reserved_port_is_not_given_before_it_listens(tmp_path: Path) -> None:
    one, other = Ports(tmp_path), Ports(tmp_path)
    port = one.reserve()
    assert other.reserve(port) != port
    with pytest.raises(NoPort, match=str(port)):
        other.reserve(port, strict=True)
    one.close()
    assert other.reserve(port, strict=True) == port


def test_processes_with_other_temporary_directories_share_the_reservations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = Ports()
    port = one.reserve()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert Ports().reserve(port) != port
    one.close()


def test_port_in_use_is_not_given(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(NoPort):
        Ports(tmp_path).reserve(listener.getsockname()[1], strict=True)
