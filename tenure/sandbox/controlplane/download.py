"""Download the official binaries if the internet is reachable. Otherwise it fails within seconds.

Each file is verified with its published digest (kwok's releases have none) and moved atomically into the cache.
"""

import hashlib
import io
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tenure.progress import Progress
from tenure.sandbox.controlplane.versions import KWOK, Release, install, platform_target

PROBE_SECONDS = 3.0
READ_SECONDS = 30.0
CHUNK = 1 << 20

KUBERNETES_SITE = "https://dl.k8s.io"
RELEASES_SITE = "https://github.com"


def download(release: Release, names: Sequence[str], cache: Path, report: Progress) -> None:
    """Download available binaries into the cache. No error without internet, because the build is next."""
    sites = {name: RELEASES_SITE if name in ("etcd", "kwok") else KUBERNETES_SITE for name in names}
    there = {site: is_reachable(site) for site in set(sites.values())}
    for name in names:
        if not there[sites[name]]:
            continue
        try:
            _download_one(release, name, cache, report)
        except (OSError, ValueError, KeyError, tarfile.TarError) as error:
            report.print_line(f"no download of {name}: {str(error) or type(error).__name__}")


def is_reachable(site: str, seconds: float = PROBE_SECONDS) -> bool:
    """Whether the site responds. Runs in a thread, because no timeout covers DNS lookups."""
    statuses: list[int] = []

    def probe() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(site, method="HEAD"), timeout=seconds) as response:
                statuses.append(response.status)
        except urllib.error.HTTPError as error:
            # A proxy that denies access responds too, so only the site's own errors count.
            statuses.extend([error.code] if error.code == 404 else [])
        except OSError:
            return

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(seconds + 1)
    return bool(statuses)


def _download_one(release: Release, name: str, cache: Path, report: Progress) -> None:
    system, architecture = platform_target()
    if name == "kwok":
        url = f"{RELEASES_SITE}/kubernetes-sigs/kwok/releases/download/v{KWOK}/kwok-{system}-{architecture}"
        install(_get(url, name, report), cache / name)
    elif name == "etcd":
        install(_download_etcd(release.etcd, system, architecture, report), cache / name)
    else:
        url = f"{KUBERNETES_SITE}/v{release.kubernetes}/bin/{system}/{architecture}/{name}"
        digest = _get(f"{url}.sha256", f"{name}'s digest", report).decode().split()[0]
        install(_verify_digest(_get(url, name, report), digest), cache / name)


def _download_etcd(version: str, system: str, architecture: str, report: Progress) -> bytes:
    base = f"{RELEASES_SITE}/etcd-io/etcd/releases/download/v{version}"
    archive = f"etcd-v{version}-{system}-{architecture}.tar.gz"
    sums: dict[str, str] = {
        line.split()[1]: line.split()[0]
        for line in _get(f"{base}/SHA256SUMS", "etcd's digests", report).decode().splitlines()
    }
    content = _verify_digest(_get(f"{base}/{archive}", "etcd", report), sums[archive])
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        member = opened.extractfile(f"{archive.removesuffix('.tar.gz')}/etcd")
        if member is None:
            raise ValueError("the archive does not contain etcd")
        return member.read()


def _get(url: str, title: str, report: Progress) -> bytes:
    with urllib.request.urlopen(url, timeout=READ_SECONDS) as response:
        total = float(response.headers.get("Content-Length") or 0)
        report.step(f"downloading {title}", total or None)
        parts: list[bytes] = []
        done = 0
        while chunk := response.read(CHUNK):
            parts.append(chunk)
            done += len(chunk)
            report.advance(done)
        return b"".join(parts)


def _verify_digest(content: bytes, digest: str) -> bytes:
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError("digest does not match")
    return content
