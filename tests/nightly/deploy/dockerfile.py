"""Parses a Dockerfile, and runs the steps of its build on this machine without a container engine."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.support.paths import ROOT

FILE = ROOT / "deploy" / "Dockerfile"
IGNORED = ROOT / ".dockerignore"


@dataclass(frozen=True)
class Step:
    instruction: str
    rest: str

    def arguments(self) -> list[str]:
        """Arguments of the exec form. Raises ValueError for the shell form."""
        if not self.rest.startswith("["):
            raise ValueError(f"{self.instruction} {self.rest}: shell form")
        found: list[str] = json.loads(self.rest)
        return found


def parse_stages(text: str) -> list[list[Step]]:
    """The steps of each stage, starting with FROM."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.M))
    steps = [Step(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]
    found: list[list[Step]] = []
    for step in steps:
        if step.instruction == "FROM":
            found.append([])
        if found:
            found[-1].append(step)
    return found


def context_files() -> list[Path]:
    """Files of the build context: git's files without those that .dockerignore excludes."""
    listing = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    rules = [line for line in IGNORED.read_text().splitlines() if line and not line.startswith("#")]
    return [Path(name) for name in listing.stdout.decode().split("\0") if name and not _ignored(name, rules)]


def _ignored(name: str, rules: list[str]) -> bool:
    """The last rule that matches the file or a folder above it decides."""
    ignored = False
    above = [name, *(str(folder) for folder in Path(name).parents if str(folder) != ".")]
    for rule in rules:
        pattern = rule.removeprefix("!").removeprefix("**/")
        if any(fnmatch(one, pattern) for one in above):
            ignored = not rule.startswith("!")
    return ignored


class BuildReplay:
    """Runs the build stage in a folder: the image's absolute paths are below `root`, and `python` is a new
    environment.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._at = root
        self._python = root / "usr" / "bin" / "python"

    def run_steps(self, steps: list[Step]) -> None:
        self._make_python()
        for step in steps:
            if step.instruction == "WORKDIR":
                self._at = self.image_path(step.rest)
                self._at.mkdir(parents=True, exist_ok=True)
            elif step.instruction == "COPY":
                self._copy(*step.rest.split())
            elif step.instruction == "RUN":
                self._run(step.arguments())
            elif step.instruction != "FROM":
                raise ValueError(f"{step.instruction} is not supported: add it to tests/nightly/deploy/dockerfile.py")

    def image_path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _make_python(self) -> None:
        """A Python like the base image's, with interpreter and pip."""
        folder = self._python.parents[1]
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self._call([sys.executable, "-m", "pip", f"--python={self._python}", "install", "--quiet", "pip"])

    def _copy(self, *names: str) -> None:
        *sources, destination = names
        for file in context_files():
            for source in sources:
                if source == "." or str(file) == source or Path(source) in file.parents:
                    inner = file if source == "." else file.relative_to(source)
                    target = self._at / destination / inner
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / file, target)

    def _run(self, arguments: list[str]) -> None:
        """Ignores --no-cache-dir, so that pip does not download cached packages again; it installs the same."""
        moved = [re.sub(r"(^|=)/", rf"\g<1>{self.root}/", one) for one in arguments if one != "--no-cache-dir"]
        if moved[0] != "python":
            raise ValueError(f"{shlex.join(arguments)}: only python is available")
        self._call([self._python, *moved[1:]])

    def _call(self, command: list[str | Path]) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        result = subprocess.run(command, cwd=self._at, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{shlex.join(map(str, command))}\n{result.stdout}\n{result.stderr}"
