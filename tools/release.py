"""Builds the files of a release in build/release: `python -m tools.release [TAG]`, or `make release`.

The wheel, both charts as packages for an OCI registry, the notes from CHANGELOG.md, and SHA256SUMS. A git tag that is
not that of the version, such as v0.3.0 for 0.2.0, builds nothing.
"""

import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

from deploy.resources import chart_version
from tenure.sandbox.controlplane.tools import helm

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "build" / "release"
CHARTS: Final = ("tenure", "tenure-crds")


def build(folder: Path = FOLDER) -> list[Path]:
    """The written files. Replaces the folder. Raises CalledProcessError if a build fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*wheel, f"--wheel-dir={folder}", ROOT], check=True)
    for chart in CHARTS:
        subprocess.run([helm(), "package", ROOT / "deploy" / "charts" / chart, "-d", folder], check=True)
    notes = release_notes((ROOT / "CHANGELOG.md").read_text(), chart_version())
    (folder / "NOTES.md").write_text(notes)
    files = sorted(folder.iterdir())
    sums = "".join(f"{sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)
    (folder / "SHA256SUMS").write_text(sums)
    return sorted(folder.iterdir())


def check_tag(tag: str, version: str) -> None:
    """Raises ValueError if the image and the release would have another version than the chart."""
    if tag != f"v{version}":
        raise ValueError(f"tag {tag}: the charts and the wheel have the version {version}, expected the tag v{version}")


def release_notes(changelog: str, version: str) -> str:
    """The section of the version, without its title. Raises ValueError without one."""
    found = re.search(rf"^## {re.escape(version)} - .*?\n(.*?)(?=^## |\Z)", changelog, flags=re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"CHANGELOG.md: no section for the version, expected '## {version} - YYYY-MM-DD'")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        check_tag(argument, chart_version())
    for file in build():
        print(file.relative_to(ROOT))
