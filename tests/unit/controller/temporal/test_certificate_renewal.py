"""Certificates and API keys that are renewed beside a worker at work: what it takes over, and when it stops."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tenure.controller.temporal.certificates import CertificateWatcher
from tenure.controller.temporal.connection import Security
from tenure.model.errors import BadInput
from tenure.sandbox.certificates import MutualTls, ensure_mutual_tls

pytestmark = pytest.mark.usefixtures("plain_log")


class Client:
    """Temporal's, as far as it has a key."""

    api_key: str | None = "first"


class CertificateHarness:
    """A worker's files, which the test renews."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = ensure_mutual_tls(folder / "old"), ensure_mutual_tls(folder / "new")
        self.folder = folder / "used"
        self.folder.mkdir()
        self.copy_files(self.old)
        (self.folder / "api-key").write_text("first\n")
        self.client, self.stop = Client(), asyncio.Event()

    @property
    def security(self) -> Security:
        ca, cert, key = (str(self.folder / name) for name in ("ca.crt", "client.crt", "client.key"))
        return Security(ca=ca, cert=cert, key=key, api_key_path=str(self.folder / "api-key"))

    def copy_files(self, files: MutualTls, *names: str) -> None:
        for name in names or ("ca.crt", "client.crt", "client.key"):
            shutil.copy(files.folder / name, self.folder / name)

    @asynccontextmanager
    async def running_watcher(self, spread: float = 0.0) -> AsyncIterator[None]:
        renewal = CertificateWatcher(self.security, self.stop, every=0.01, spread=spread)
        task = asyncio.create_task(renewal.watch(self.client))
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def harness(tmp_path: Path) -> CertificateHarness:
    return CertificateHarness(tmp_path)


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of files and logs there are no events
            await asyncio.sleep(0.01)


async def test_new_certificates_stop_the_worker_and_it_says_so(harness: CertificateHarness) -> None:
    with capture_logs() as logs:
        async with harness.running_watcher():
            harness.copy_files(harness.new)
            await wait_for(harness.stop.is_set)
    (record,) = [one for one in logs if "TLS files" in one["event"]]
    assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in record["files"]


async def test_files_that_stay_as_they_are_or_are_written_anew_alike_stop_nobody(harness: CertificateHarness) -> None:
    async with harness.running_watcher():
        harness.copy_files(harness.old)
        await asyncio.sleep(0.1)
    assert not harness.stop.is_set()


async def test_a_certificate_whose_key_is_not_there_yet_is_looked_at_again(harness: CertificateHarness) -> None:
    with capture_logs() as logs:
        async with harness.running_watcher():
            harness.copy_files(harness.new, "ca.crt", "client.crt")
            await wait_for(lambda: bool(logs))
            await asyncio.sleep(0.1)
            assert not harness.stop.is_set()
            harness.copy_files(harness.new)
            await wait_for(harness.stop.is_set)
    assert [one["log_level"] for one in logs] == ["warning", "info"]


@pytest.mark.parametrize("name", ["ca.crt", "client.crt", "client.key"])
async def test_half_a_file_or_none_stops_nobody(harness: CertificateHarness, name: str) -> None:
    async with harness.running_watcher():
        file = harness.folder / name
        file.write_bytes((harness.new.folder / name).read_bytes()[:60])
        await asyncio.sleep(0.05)
        file.unlink()
        await asyncio.sleep(0.05)
    assert not harness.stop.is_set()


async def test_certificates_that_are_taken_back_while_it_waits_for_its_turn_stop_nobody(
    harness: CertificateHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    with capture_logs() as logs:
        async with harness.running_watcher(spread=2.0):
            harness.copy_files(harness.new)
            await wait_for(lambda: any("TLS files" in one["event"] for one in logs))
            harness.copy_files(harness.old)
            await asyncio.sleep(2.5)
    assert not harness.stop.is_set()


async def test_replicas_stop_at_moments_of_their_own(
    harness: CertificateHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[tuple[float, float]] = []

    def at_once(low: float, high: float) -> float:
        spans.append((low, high))
        return low

    monkeypatch.setattr("random.uniform", at_once)
    async with harness.running_watcher(spread=7.0):
        harness.copy_files(harness.new)
        await wait_for(harness.stop.is_set)
    assert spans == [(0, 7.0)]


async def test_a_new_api_key_is_used_without_a_stop(harness: CertificateHarness) -> None:
    with capture_logs() as logs:
        async with harness.running_watcher():
            (harness.folder / "api-key").write_text("")
            await asyncio.sleep(0.05)
            assert harness.client.api_key == "first"
            (harness.folder / "api-key").write_text("second\n")
            await wait_for(lambda: harness.client.api_key == "second")
            await asyncio.sleep(0.05)
    assert not harness.stop.is_set()
    assert not [one for one in logs if "second" in str(one)]


async def test_what_has_neither_files_nor_key_is_left_alone(tmp_path: Path) -> None:
    client, stop = Client(), asyncio.Event()
    client.api_key = None
    task = asyncio.create_task(CertificateWatcher(Security(tls=True), stop, every=0.01, spread=0.0).watch(client))
    await asyncio.sleep(0.05)
    assert (client.api_key, stop.is_set(), task.done()) == (None, False, False)
    task.cancel()


def test_a_key_in_a_file_comes_first_means_tls_and_is_missed_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "api-key"
    file.write_text("secret\n")
    assert Security(api_key="other", api_key_path=str(file)).read_api_key() == "secret"
    assert Security(api_key_path=str(file)).tls_config() is True
    assert (Security(api_key="other").read_api_key(), Security().read_api_key()) == ("other", None)
    file.write_text("\n")
    for path in (file, tmp_path / "nowhere"):
        with pytest.raises(BadInput, match=f"TEMPORAL_API_KEY_PATH={path}"):
            Security(api_key_path=str(path)).read_api_key()
