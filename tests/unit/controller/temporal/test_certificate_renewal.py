"""Renewal of certificates and API keys of a running worker: which it reloads, and for which it stops."""

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
    """The API key of a Temporal client."""

    api_key: str | None = "first"


class CertificateHarness:
    """TLS files and an API key of a worker, which the test replaces."""

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
        while not condition():  # noqa: ASYNC110 - files and logs have no event to wait for
            await asyncio.sleep(0.01)


async def test_new_certificates_stop_the_worker_with_a_log(harness: CertificateHarness) -> None:
    with capture_logs() as logs:
        async with harness.running_watcher():
            harness.copy_files(harness.new)
            await wait_for(harness.stop.is_set)
    (record,) = [one for one in logs if "TLS files" in one["event"]]
    assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in record["files"]


async def test_unchanged_files_do_not_stop_the_worker(harness: CertificateHarness) -> None:
    async with harness.running_watcher():
        harness.copy_files(harness.old)
        await asyncio.sleep(0.1)
    assert not harness.stop.is_set()


async def test_certificate_without_matching_key_is_checked_again(harness: CertificateHarness) -> None:
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
async def test_incomplete_or_missing_file_does_not_stop_the_worker(harness: CertificateHarness, name: str) -> None:
    async with harness.running_watcher():
        file = harness.folder / name
        file.write_bytes((harness.new.folder / name).read_bytes()[:60])
        await asyncio.sleep(0.05)
        file.unlink()
        await asyncio.sleep(0.05)
    assert not harness.stop.is_set()


async def test_certificates_restored_during_the_delay_do_not_stop_the_worker(
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


async def test_stop_is_delayed_randomly_within_the_spread(
    harness: CertificateHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges: list[tuple[float, float]] = []

    def draw_shortest(low: float, high: float) -> float:
        ranges.append((low, high))
        return low

    monkeypatch.setattr("random.uniform", draw_shortest)
    async with harness.running_watcher(spread=7.0):
        harness.copy_files(harness.new)
        await wait_for(harness.stop.is_set)
    assert ranges == [(0, 7.0)]


async def test_new_api_key_is_used_without_a_stop(harness: CertificateHarness) -> None:
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


async def test_watcher_without_files_and_key_does_nothing(tmp_path: Path) -> None:
    client, stop = Client(), asyncio.Event()
    client.api_key = None
    task = asyncio.create_task(CertificateWatcher(Security(tls=True), stop, every=0.01, spread=0.0).watch(client))
    await asyncio.sleep(0.05)
    assert (client.api_key, stop.is_set(), task.done()) == (None, False, False)
    task.cancel()


def test_api_key_file_takes_precedence_implies_tls_and_must_not_be_empty(tmp_path: Path) -> None:
    file = tmp_path / "api-key"
    file.write_text("secret\n")
    assert Security(api_key="other", api_key_path=str(file)).read_api_key() == "secret"
    assert Security(api_key_path=str(file)).tls_config() is True
    assert (Security(api_key="other").read_api_key(), Security().read_api_key()) == ("other", None)
    file.write_text("\n")
    for path in (file, tmp_path / "nowhere"):
        with pytest.raises(BadInput, match=f"TEMPORAL_API_KEY_PATH={path}"):
            Security(api_key_path=str(path)).read_api_key()
