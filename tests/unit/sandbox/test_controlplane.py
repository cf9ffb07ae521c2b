"""Sources of the control plane binaries."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tenure.progress import LineProgress
from tenure.sandbox.controlplane import binaries, build, download, find_or_build
from tenure.sandbox.controlplane.versions import (
    DEFAULT_MINOR,
    KWOK,
    NAMES,
    RELEASES,
    SELECTED,
    Release,
    binaries_folder,
    platform_target,
)
from tenure.sandbox.errors import BuildFailed

RELEASE = RELEASES[DEFAULT_MINOR]


def write_binaries(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENURE_CACHE", str(tmp_path / "cache"))
    return binaries_folder(RELEASE)


@pytest.fixture
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "is_reachable", lambda site: False)


def test_folder_from_environment_takes_precedence_over_cache(cache: Path, tmp_path: Path) -> None:
    named = tmp_path / "named"
    write_binaries(named, "etcd", "kube-apiserver")
    write_binaries(cache, *NAMES)
    found = find_or_build({binaries.ASSETS: str(named)})
    assert found["etcd"] == named / "etcd"
    assert found["kwok"] == cache / "kwok"


def test_each_release_has_its_own_cache(cache: Path) -> None:
    for release in RELEASES.values():
        write_binaries(binaries_folder(release), *NAMES)
    assert find_or_build({})["etcd"] == cache / "etcd"
    newest = binaries_folder(RELEASES["1.37"]) / "etcd"
    assert (
        find_or_build({SELECTED: "1.37"})["etcd"] == find_or_build({}, minor="1.37")["etcd"] == newest != cache / "etcd"
    )
    with pytest.raises(ValueError, match=r"1\.99 is not available, expected one of 1\.29, 1\.34, 1\.37"):
        find_or_build({SELECTED: "1.99"})


def test_concurrent_callers_build_once(cache: Path, no_site: None, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[list[str]] = []
    begun, may_continue = threading.Event(), threading.Event()

    def slow_build(release: Release, names: list[str], folder: Path, report: object) -> None:
        builds.append(names)
        begun.set()
        assert may_continue.wait(30)
        write_binaries(folder, *names)

    monkeypatch.setattr(binaries, "build", slow_build)
    threads = [threading.Thread(target=find_or_build, args=({},)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    may_continue.set()
    for thread in threads:
        thread.join()
    assert builds == [list(NAMES)]


def test_finished_binaries_of_interrupted_build_are_reused(
    cache: Path, no_site: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_binaries(cache, "etcd", "kwok")
    build_requests: list[list[str]] = []
    monkeypatch.setattr(build, "ensure_golang", lambda *_: Path("go"))

    def build_some(go: Path, target: object, names: list[str], cache: Path, report: object) -> None:
        build_requests.append(names)
        write_binaries(cache, *names)

    monkeypatch.setattr(build, "build_target", build_some)
    find_or_build({})
    assert build_requests == [["kube-apiserver", "kube-controller-manager", "kube-scheduler"]]


def test_failed_build_shows_last_compiler_lines(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo 'go: downloading x' >&2; echo 'x.go:1: no such thing' >&2; exit 1"]
    with pytest.raises(BuildFailed, match=r"x\.go:1: no such thing"):
        build._run(command, tmp_path, LineProgress())


def archive_of_etcd() -> bytes:
    content, (system, architecture) = io.BytesIO(), platform_target()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo(f"etcd-v{RELEASE.etcd}-{system}-{architecture}/etcd")
        member.size = len(b"etcd")
        archive.addfile(member, io.BytesIO(b"etcd"))
    return content.getvalue()


def published() -> dict[str, bytes]:
    system, architecture = platform_target()
    found = {"/": b"here"}
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        path = f"/v{RELEASE.kubernetes}/bin/{system}/{architecture}/{name}"
        found |= {path: name.encode(), f"{path}.sha256": hashlib.sha256(name.encode()).hexdigest().encode()}
    archive, etcd = archive_of_etcd(), f"/etcd-io/etcd/releases/download/v{RELEASE.etcd}"
    file = f"etcd-v{RELEASE.etcd}-{system}-{architecture}.tar.gz"
    found |= {f"{etcd}/{file}": archive}
    found |= {f"{etcd}/SHA256SUMS": f"{hashlib.sha256(archive).hexdigest()}  {file}\n".encode()}
    return found | {f"/kubernetes-sigs/kwok/releases/download/v{KWOK}/kwok-{system}-{architecture}": b"kwok"}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A server for both download sites, whose files the test may change."""
    files = published()
    server = HTTPServer(("127.0.0.1", 0), handler_of(files))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(download, "KUBERNETES_SITE", url)
    monkeypatch.setattr(download, "RELEASES_SITE", url)
    yield files
    server.shutdown()
    server.server_close()


def handler_of(files: Mapping[str, bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            content = files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def test_binaries_are_downloaded_and_verified(cache: Path, site: dict[str, bytes]) -> None:
    found = find_or_build({})
    assert {name: found[name].read_bytes() for name in NAMES} == {name: name.encode() for name in NAMES}


def test_download_with_wrong_digest_is_built_instead(
    cache: Path, site: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in site:
        if path.endswith("/kube-scheduler"):
            site[path] = b"something else"
    built: list[list[str]] = []
    monkeypatch.setattr(binaries, "build", lambda release, names, folder, report: built.append(names))
    find_or_build({})
    assert built == [["kube-scheduler"]]
    assert not (cache / "kube-scheduler").exists()


def test_unreachable_site_is_detected() -> None:
    assert not download.is_reachable("http://127.0.0.1:1", seconds=1)
