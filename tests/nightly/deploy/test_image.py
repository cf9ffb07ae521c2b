"""The image: its Dockerfile is linted, its build runs in an empty folder, and the result starts without a shell."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.settings import Settings
from tests.nightly.deploy.dockerfile import FILE, IGNORED, BuildReplay, context_files, parse_stages
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(900)
READ = (".yaml", ".json", ".tpl", ".txt")
BUILD, FINAL = parse_stages(FILE.read_text())
VARIABLES = dict(pair.split("=", 1) for step in FINAL if step.instruction == "ENV" for pair in step.rest.split())


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> BuildReplay:
    replay = BuildReplay(tmp_path_factory.mktemp("image"))
    replay.run_steps(BUILD)
    return replay


def start_image(image: BuildReplay, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """As the container starts it: only the entry point is on the path, and no variable of this process is inherited."""
    (entry,) = [step.arguments() for step in FINAL if step.instruction == "ENTRYPOINT"]
    programs = image.image_path("/opt/tenure/bin")
    environment = {"PATH": str(programs), "PYTHONDONTWRITEBYTECODE": "1", **settings}
    environment["PYTHONPYCACHEPREFIX"] = str(image.image_path(VARIABLES["PYTHONPYCACHEPREFIX"]))
    command = [str(programs / entry[0]), *entry[1:], *arguments]
    return subprocess.run(command, env=environment, cwd=image.image_path("/"), capture_output=True, text=True)


def test_dockerfile_has_no_lint_error() -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert linter, "hadolint is not installed: make setup"
    result = subprocess.run([linter, "--failure-threshold=warning", FILE], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_time_zones_are_those_of_the_locked_package(image: BuildReplay) -> None:
    code = "import zoneinfo; print(zoneinfo.ZoneInfo('Europe/Berlin'), zoneinfo.TZPATH)"
    result = subprocess.run(
        [image.image_path("/opt/tenure/bin/python"), "-c", code],
        env={"PYTHONTZPATH": VARIABLES["PYTHONTZPATH"]},
        capture_output=True,
        text=True,
    )
    assert result.stdout == "Europe/Berlin ()\n", result.stderr


def test_no_step_uses_a_shell() -> None:
    for step in (*BUILD, *FINAL):
        if step.instruction in ("RUN", "CMD", "ENTRYPOINT"):
            assert step.arguments()


def test_image_has_only_the_environment_and_runs_unprivileged() -> None:
    bases = {step.rest.split()[0] for step in (*BUILD, *FINAL) if step.instruction == "FROM"}
    copied = [step.rest for step in FINAL if step.instruction == "COPY"]
    assert len(bases) == 1
    assert copied == [f"--from=build {one} {one}" for one in ("/opt/tenure", VARIABLES["PYTHONPYCACHEPREFIX"])]
    assert not [step for step in FINAL if step.instruction in ("RUN", "ADD", "VOLUME")]
    assert [step.rest for step in FINAL if step.instruction == "USER"] == ["65532:65532"]
    ports = {str(Settings.model_fields[name].default) for name in ("metrics_port", "health_probe_port")}
    assert {port for step in FINAL if step.instruction == "EXPOSE" for port in step.rest.split()} == ports


def test_both_stages_use_a_slim_base_pinned_by_digest() -> None:
    assert re.search(r"^ARG PYTHON=3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}$", FILE.read_text(), flags=re.M)
    stages = [step.rest.split()[0] for step in (*BUILD, *FINAL) if step.instruction == "FROM"]
    assert stages == ["python:${PYTHON}"] * 2


def test_all_packages_are_locked_with_hashes_or_from_source() -> None:
    installs = [step.arguments() for step in BUILD if step.instruction == "RUN" and "install" in step.rest]
    assert len(installs) == 3
    for arguments in installs:
        assert {"--require-hashes", "--only-binary=:all:"} <= set(arguments) or "--no-index" in arguments


def test_build_context_has_only_needed_files() -> None:
    names = {path.parts[0] for path in context_files()}
    assert {"worker.py", "workflows", "deploy", "requirements"} <= names
    assert not names & {"tests", "docs", "benchmarks", ".ci", ".git", ".venv"}
    reincluded = {line.removeprefix("!") for line in IGNORED.read_text().splitlines() if line.startswith("!")}
    assert {name for name in reincluded if not (ROOT / name).exists()} == set()


def test_command_starts_from_the_built_image(image: BuildReplay) -> None:
    result = start_image(image, "version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("tenure 0.")


def test_worker_starts_and_reports_missing_settings(image: BuildReplay) -> None:
    (default_command,) = [step.arguments() for step in FINAL if step.instruction == "CMD"]
    helped = start_image(image, *default_command, "--help")
    assert helped.returncode == 0 and "--cluster-name" in helped.stdout, helped.stderr
    bare = start_image(image, *default_command)
    assert bare.returncode == 2
    assert bare.stderr.startswith("tenure: CLUSTER_NAME is not set;")
    unreachable = start_image(
        image,
        *default_command,
        CLUSTER_NAME="prod",
        TEMPORAL_ADDRESS="127.0.0.1:1",
        METRICS_PORT="0",
        HEALTH_PROBE_PORT="0",
    )
    assert unreachable.returncode == 2
    assert "connection refused" in unreachable.stderr


def test_programs_write_no_files(image: BuildReplay) -> None:
    """The root file system may be read-only."""
    before = list_files(image)
    start_image(
        image, "worker", CLUSTER_NAME="prod", TEMPORAL_ADDRESS="127.0.0.1:1", METRICS_PORT="0", HEALTH_PROBE_PORT="0"
    )
    start_image(image, "--help")
    assert list_files(image) == before


def test_programs_compile_no_modules(image: BuildReplay) -> None:
    """Python reports no source file as the origin of code, also not of the standard library."""
    for arguments in (["version"], ["worker", "--help"]):
        result = start_image(image, *arguments, PYTHONVERBOSE="1")
        assert result.returncode == 0
        assert re.findall(r"^# code object from '?[^'\n]+\.pyc", result.stderr, flags=re.M)
        assert re.findall(r"^# code object from '?([^'\n]+\.py)'?$", result.stderr, flags=re.M) == []


def list_files(image: BuildReplay) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in image.root.rglob("*") if path.is_file()}


def test_image_has_all_shipped_data_files(image: BuildReplay) -> None:
    (packages,) = image.image_path("/opt/tenure/lib").glob("python*/site-packages")
    for name in (
        "deploy/crds",
        "deploy/rbac",
        "deploy/iam",
        "deploy/charts",
        "deploy/alerts",
        "tenure/cli/demo/manifests",
    ):
        shipped = {path for path in context_files() if path.is_relative_to(name) and path.suffix in READ}
        assert shipped and {path for path in shipped if not (packages / path).exists()} == set()
    assert not (packages / "moto").exists()
