"""Search order of binaries: the user's path, the cache, a download, a build.

Each binary goes into the cache separately, so that the next run continues an interrupted one.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tenure.progress import Progress, report_progress
from tenure.sandbox.controlplane.build import build
from tenure.sandbox.controlplane.download import download
from tenure.sandbox.controlplane.versions import (
    NAMES,
    Binaries,
    Release,
    binaries_folder,
    find_release,
    selected_minor,
)

ASSETS = "KUBEBUILDER_ASSETS"


def find_or_build(environment: Mapping[str, str] = os.environ, *, minor: str = "") -> Binaries:
    """All binaries of a version, with progress on stderr. May take long.

    `minor`: by default that of `TENURE_KUBERNETES`. Raises `BuildFailed` if no source has the binaries, and ValueError
    for an unknown version.
    """
    release = find_release(minor or selected_minor(environment))
    cache = binaries_folder(release)
    if missing_binaries(environment, cache):
        cache.mkdir(parents=True, exist_ok=True)
        with report_progress() as report, only_one(cache.with_name(f"{cache.name}.lock"), report):
            _ensure_cached(release, cache, environment, report)
    return Binaries({name: _find_binary(name, environment, cache) or cache / name for name in NAMES})


def missing_binaries(environment: Mapping[str, str], cache: Path) -> list[str]:
    """Binaries that are neither on the user's path nor in the cache."""
    return [name for name in NAMES if _find_binary(name, environment, cache) is None]


def _find_binary(name: str, environment: Mapping[str, str], cache: Path) -> Path | None:
    folders = [Path(environment[ASSETS])] if environment.get(ASSETS) else []
    for folder in (*folders, cache):
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def _ensure_cached(release: Release, cache: Path, environment: Mapping[str, str], report: Progress) -> None:
    # Check again under the lock, because another process may have built them meanwhile.
    if names := missing_binaries(environment, cache):
        download(release, names, cache, report)
    if names := missing_binaries(environment, cache):
        build(release, names, cache, report)


@contextmanager
def only_one(lock: Path, report: Progress) -> Iterator[None]:
    """One builder per cache. Other processes wait, and then find the binaries."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report.print_line("waiting for another process that builds the same binaries")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
