"""Build the control plane from Go modules.

`kubernetes-1.34/go.mod` pins every k8s.io staging repository to the tag of the release. So k8s.io/kubernetes can be
built as a dependency. The database etcd is in the same module, so that shared packages compile once. The simulator kwok
needs other versions of these libraries and has its own module. An interrupted build continues from Go's build cache.
"""

import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.progress import Progress
from tenure.sandbox.controlplane.golang import ensure_golang, golang_environment
from tenure.sandbox.controlplane.versions import KWOK, Release, install_file
from tenure.sandbox.errors import BuildFailed
from tenure.sandbox.processes import tied_to_us

HERE = Path(__file__).parent
LAST_LINES = 15


@dataclass(frozen=True)
class Target:
    """One `go build`: module, package of each binary, approximate number of packages, and version stamps."""

    module: str
    binaries: dict[str, str]
    packages: int
    versions: dict[str, str]


_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_KWOK = Target("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, 680, {"sigs.k8s.io/kwok/pkg/consts.Version": f"v{KWOK}"})


def targets_of(release: Release) -> tuple[Target, ...]:
    """The builds of all binaries of a release."""
    module = f"kubernetes-{release.minor}"
    commands = {name: f"k8s.io/kubernetes/cmd/{name}" for name in _COMMANDS}
    return (
        Target(module, {"etcd": "go.etcd.io/etcd/server/v3"}, 560, {}),
        Target(module, commands, 1880, _version_stamps(release.kubernetes)),
        _KWOK,
    )


def _version_stamps(version: str) -> dict[str, str]:
    major, minor, _ = version.split(".")
    fields = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{field}": value for package in packages for field, value in fields.items()}


def build(release: Release, names: Sequence[str], cache: Path, report: Progress) -> None:
    """Build the named binaries into the cache. Raises `BuildFailed` with the compiler's last lines."""
    report.print_line(
        f"Kubernetes {release.kubernetes} is built from source, once: 4 to 6 minutes on two cores, 0.4 GB in {cache}, "
        "4 GB in Go's caches, which `go clean -cache -modcache` empties"
    )
    compiler = ensure_golang(report, release.go, release.wheel)
    for stale in cache.glob(".build-*"):
        shutil.rmtree(stale, ignore_errors=True)
    for target in targets_of(release):
        binaries = [name for name in target.binaries if name in names]
        if binaries:
            build_target(compiler, target, binaries, cache, report)


def build_target(compiler: Path, target: Target, binaries: list[str], cache: Path, report: Progress) -> None:
    """Build some of a target's binaries into the cache. Raises `BuildFailed` with the compiler's last lines."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as made:
        folder = Path(made)
        for name in ("go.mod", "go.sum"):
            shutil.copy(HERE / target.module / name, folder / name)
        report.step(f"building {', '.join(binaries)}", target.packages)
        _run(_build_command(compiler, target, binaries), folder, report)
        for name in binaries:
            install_file(folder / "out" / _output_name(target.binaries[name]), cache / name)


def _build_command(compiler: Path, target: Target, binaries: list[str]) -> list[str]:
    stamps = " ".join(f"-X {name}={value}" for name, value in target.versions.items())
    # No debug information, which saves a tenth of compilation and a third of writing.
    return [
        str(compiler),
        "build",
        "-v",
        "-trimpath",
        "-buildvcs=false",
        "-gcflags=all=-dwarf=false",
        "-ldflags",
        f"-s -w {stamps}".strip(),
        "-o",
        "out/",
        *(target.binaries[name] for name in binaries),
    ]


def _output_name(package: str) -> str:
    """Name of the binary of `go build -o folder/`: the last path element that is not a major version."""
    parts = package.split("/")
    return parts[-2] if parts[-1].startswith("v") and parts[-1][1:].isdigit() else parts[-1]


def _run(command: list[str], folder: Path, report: Progress) -> None:
    (folder / "out").mkdir()
    last: deque[str] = deque(maxlen=LAST_LINES)
    compiled = 0
    with subprocess.Popen(
        tied_to_us(command),
        cwd=folder,
        env=golang_environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stderr is not None
        try:
            for line in child.stderr:
                last.append(line.rstrip())
                compiled += not line.startswith("go: ")
                report.advance(compiled, line.strip())
        except BaseException:
            child.terminate()
            raise
    if child.returncode:
        raise BuildFailed(f"{' '.join(command[:2])} failed:\n" + "\n".join(last))
