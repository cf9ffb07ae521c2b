"""The first `make` shows how far the installation of the packages is, and the end of pip's output only if pip fails."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
PACKAGES = 120
FAKE_PYTHON = f"""#!/bin/sh
case "$*" in
*--require-hashes*)
    for number in $(seq {PACKAGES}); do
        echo "Collecting package$number==1.0 (from -r requirements/dev.txt (line $number))"
        echo "  Downloading package$number-1.0-py3-none-any.whl (15 kB)"
    done
    echo "pip's last line"
    exit ${{PIP_STATUS:-0}}
    ;;
*'install'*) touch .venv/bin/tenure; chmod +x .venv/bin/tenure ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "bootstrap", tmp_path / ".ci")
    (tmp_path / "requirements").mkdir()
    lines = (f"package{number}==1.0 --hash=sha256:0\n" for number in range(PACKAGES))
    (tmp_path / "requirements" / "dev.txt").write_text("".join(lines))
    (tmp_path / "pyproject.toml").write_text("")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    return tmp_path


def run_bootstrap(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(project / ".ci" / "bootstrap")]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_installation_prints_time_size_and_progress_but_no_output_of_pip(project: Path) -> None:
    result = run_bootstrap(project)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    lines = result.stderr.splitlines()
    assert "about a minute" in lines[0] and "GB on disk" in lines[0]
    assert [line for line in lines if " of 120 " in line] == [f"bootstrap: {n} of 120 packages" for n in (50, 100)]
    assert len(lines) == 5
    assert run_bootstrap(project).stderr == ""


def test_failed_installation_prints_the_end_of_the_output_of_pip(project: Path) -> None:
    result = run_bootstrap(project, PIP_STATUS="1")
    assert result.returncode == 1
    assert "pip's last line" in result.stderr and "all of its output is in .venv/install.log" in result.stderr
    assert "package1==1.0" in (project / ".venv" / "install.log").read_text()
    assert run_bootstrap(project).returncode == 0
