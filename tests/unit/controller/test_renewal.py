"""Certificates and API keys that are renewed beside a worker at work: what it takes over, and when it stops."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tenure.controller.temporal.certificates import Renewal
from tenure.controller.temporal.connection import Security
from tenure.model.errors import BadInput
from tenure.sandbox.certificates import MutualTls, ensure_mutual_tls

pytestmark = pytest.mark.usefixtures("plain_log")


class Client:
    """Temporal's, as far as it has a key."""

    api_key: str | None = "first"


class Stage:
    """A worker's files, which the test renews."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = ensure_mutual_tls(folder / "old"), ensure_mutual_tls(folder / "new")
        self.folder = folder / "used"
        self.folder.mkdir()
        self.put(self.old)
        (self.folder / "api-key").write_text("first\n")
        self.client, self.stop = Client(), asyncio.Event()

    @property
    def security(self) -> Security:
        ca, cert, key = (str(self.folder / name) for name in ("ca.crt", "client.crt", "client.key"))
        return Security(ca=ca, cert=cert, key=key, api_key_path=str(self.folder / "api-key"))

    def put(self, files: MutualTls, *names: str) -> None:
        for name in names or ("ca.crt", "client.crt", "client.key"):
            shutil.copy(files.folder / name, self.folder / name)

    @asynccontextmanager
    async def watched(self, spread: float = 0.0) -> AsyncIterator[None]:
        renewal = Renewal(self.security, self.stop, every=0.01, spread=spread)
        task = asyncio.create_task(renewal.keep(self.client))
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110 - of files and logs there are no events
            await asyncio.sleep(0.01)


async def test_new_certificates_stop_the_worker_and_it_says_so(stage: Stage) -> None:
    with capture_logs() as logs:
        async with stage.watched():
            stage.put(stage.new)
            await until(stage.stop.is_set)
    (said,) = [one for one in logs if "are new" in one["event"]]
    assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in said["files"]


async def test_files_that_stay_as_they_are_or_are_written_anew_alike_stop_nobody(stage: Stage) -> None:
    async with stage.watched():
        stage.put(stage.old)
        await asyncio.sleep(0.1)
    assert not stage.stop.is_set()


async def test_a_certificate_whose_key_is_not_there_yet_is_looked_at_again(stage: Stage) -> None:
    with capture_logs() as logs:
        async with stage.watched():
            stage.put(stage.new, "ca.crt", "client.crt")
            await until(lambda: bool(logs))
            await asyncio.sleep(0.1)
            assert not stage.stop.is_set()
            stage.put(stage.new)
            await until(stage.stop.is_set)
    assert [one["log_level"] for one in logs] == ["warning", "info"]


@pytest.mark.parametrize("name", ["ca.crt", "client.crt", "client.key"])
async def test_half_a_file_or_none_stops_nobody(stage: Stage, name: str) -> None:
    async with stage.watched():
        file = stage.folder / name
        file.write_bytes((stage.new.folder / name).read_bytes()[:60])
        await asyncio.sleep(0.05)
        file.unlink()
        await asyncio.sleep(0.05)
    assert not stage.stop.is_set()


async def test_certificates_that_are_taken_back_while_it_waits_for_its_turn_stop_nobody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    with capture_logs() as logs:
        async with stage.watched(spread=2.0):
            stage.put(stage.new)
            await until(lambda: any("are new" in one["event"] for one in logs))
            stage.put(stage.old)
            await asyncio.sleep(2.5)
    assert not stage.stop.is_set()


async def test_replicas_stop_at_moments_of_their_own(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[float, float]] = []

    def at_once(low: float, high: float) -> float:
        spans.append((low, high))
        return low

    monkeypatch.setattr("random.uniform", at_once)
    async with stage.watched(spread=7.0):
        stage.put(stage.new)
        await until(stage.stop.is_set)
    assert spans == [(0, 7.0)]


async def test_a_new_api_key_is_used_without_a_stop(stage: Stage) -> None:
    with capture_logs() as logs:
        async with stage.watched():
            (stage.folder / "api-key").write_text("")
            await asyncio.sleep(0.05)
            assert stage.client.api_key == "first"
            (stage.folder / "api-key").write_text("second\n")
            await until(lambda: stage.client.api_key == "second")
            await asyncio.sleep(0.05)
    assert not stage.stop.is_set()
    assert not [one for one in logs if "second" in str(one)]


async def test_what_has_neither_files_nor_key_is_left_alone(tmp_path: Path) -> None:
    client, stop = Client(), asyncio.Event()
    client.api_key = None
    task = asyncio.create_task(Renewal(Security(tls=True), stop, every=0.01, spread=0.0).keep(client))
    await asyncio.sleep(0.05)
    assert (client.api_key, stop.is_set(), task.done()) == (None, False, False)
    task.cancel()


def test_a_key_in_a_file_comes_first_means_tls_and_is_missed_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "api-key"
    file.write_text("secret\n")
    assert Security(api_key="other", api_key_path=str(file)).bearer() == "secret"
    assert Security(api_key_path=str(file)).config() is True
    assert (Security(api_key="other").bearer(), Security().bearer()) == ("other", None)
    file.write_text("\n")
    for path in (file, tmp_path / "nowhere"):
        with pytest.raises(BadInput, match=f"TEMPORAL_API_KEY_PATH={path}"):
            Security(api_key_path=str(path)).bearer()
