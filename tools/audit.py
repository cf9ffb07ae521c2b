"""Known weaknesses of the packages that the worker is made of: `python -m tools.audit [FLAG of pip-audit]...`.

Exit code 1 where there is one. What could not be looked up, since an index has no advisories or does not answer, is
said and is no weakness: pip-audit does not tell the two apart by its exit code.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements" / "worker.txt"
TOOL = ROOT / "build" / "audit" / "bin" / "pip-audit"
TIMEOUT_SECONDS = 300.0
"""Seconds for all packages."""


def main(flags: Sequence[str]) -> int:
    command = [str(TOOL), "--disable-pip", "--require-hashes", "-r", str(LOCK), "-f", "json", "--progress-spinner=off"]
    try:
        result = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"not audited: the index did not answer in {TIMEOUT_SECONDS:.0f} s")
        return 0
    if not result.stdout.startswith("{"):
        print(f"not audited: {(result.stderr.strip() or 'pip-audit said nothing').splitlines()[-1]}")
        return 0
    weak, message = evaluate_report(json.loads(result.stdout))
    print(message)
    return int(weak)


def evaluate_report(report: dict[str, Any]) -> tuple[bool, str]:
    """Whether anything is weak, and what a person has to know: a line for each weakness, or how many were looked up."""
    packages = report["dependencies"]
    skipped = [one for one in packages if "skip_reason" in one]
    weak = [(one, found) for one in packages for found in one.get("vulns", ())]
    if weak:
        return True, "\n".join(_format_vulnerability(one, found) for one, found in weak)
    message = f"{len(packages) - len(skipped)} packages without a known weakness"
    return False, f"{message}; {len(skipped)} not audited: the index has no advisories of them" if skipped else message


def _format_vulnerability(package: dict[str, Any], found: dict[str, Any]) -> str:
    fix_versions = found.get("fix_versions")
    todo = f"lock {' or '.join(fix_versions)}" if fix_versions else "no version mends it yet"
    return f"{package['name']} {package['version']}: {found['id']}; {todo}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
