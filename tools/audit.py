"""Report known vulnerabilities of the worker's dependencies: `python -m tools.audit [FLAG of pip-audit]...`.

Exit code 1 if there is a vulnerability. A package that could not be audited, because the index has no advisories or
does not respond, is reported and does not fail the audit. The exit code of pip-audit does not distinguish the two.
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
        print(f"not audited: the index did not respond within {TIMEOUT_SECONDS:.0f} s")
        return 0
    if not result.stdout.startswith("{"):
        print(f"not audited: {(result.stderr.strip() or 'pip-audit printed nothing').splitlines()[-1]}")
        return 0
    is_vulnerable, message = evaluate_report(json.loads(result.stdout))
    print(message)
    return int(is_vulnerable)


def evaluate_report(report: dict[str, Any]) -> tuple[bool, str]:
    """Whether there are vulnerabilities, and the report: a line for each, or the number of audited packages."""
    packages = report["dependencies"]
    skipped = [one for one in packages if "skip_reason" in one]
    vulnerable = [(one, found) for one in packages for found in one.get("vulns", ())]
    if vulnerable:
        return True, "\n".join(_format_vulnerability(one, found) for one, found in vulnerable)
    message = f"{len(packages) - len(skipped)} packages without a known vulnerability"
    return False, f"{message}; {len(skipped)} not audited: the index has no advisories for them" if skipped else message


def _format_vulnerability(package: dict[str, Any], found: dict[str, Any]) -> str:
    fix_versions = found.get("fix_versions")
    todo = f"lock {' or '.join(fix_versions)}" if fix_versions else "no fixed version yet"
    return f"{package['name']} {package['version']}: {found['id']}; {todo}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
