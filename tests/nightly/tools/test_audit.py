"""The summary of a package audit, from reports of pip-audit."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools import audit

SECURE: dict[str, Any] = {"name": "boto3", "version": "1.40", "vulns": []}
SKIPPED = {"name": "yarl", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE = {**SECURE, "name": "aiohttp", "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["3.14.6", "3.15.0"]}]}
UNFIXED = {**SECURE, "name": "yarl", "vulns": [{"id": "GHSA-1", "fix_versions": []}]}


def test_each_vulnerability_is_listed_with_its_fix() -> None:
    assert audit.evaluate_report({"dependencies": [SECURE, VULNERABLE, SKIPPED, UNFIXED]}) == (
        True,
        "aiohttp 1.40: PYSEC-2026-1; lock 3.14.6 or 3.15.0\nyarl 1.40: GHSA-1; no fixed version yet",
    )


def test_skipped_package_is_reported_as_not_audited() -> None:
    assert audit.evaluate_report({"dependencies": [SECURE]}) == (False, "1 packages without a known vulnerability")
    assert audit.evaluate_report({"dependencies": [SECURE, SKIPPED]})[1].endswith(
        "1 not audited: the index has no advisories for them"
    )


@pytest.mark.parametrize(
    ("tool", "code", "expected_output"),
    [
        (f"echo '{json.dumps({'dependencies': [VULNERABLE]})}'; exit 1", 1, "PYSEC-2026-1"),
        ("echo 'ConnectionError: no route' >&2; exit 1", 0, "not audited: ConnectionError: no route"),
        ("sleep 30", 0, "not audited: the index did not respond"),
    ],
    ids=["vulnerable", "connection error", "timeout"],
)
def test_only_a_vulnerability_fails_the_check(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tool: str,
    code: int,
    expected_output: str,
) -> None:
    path = tmp_path / "pip-audit"
    path.write_text(f"#!/bin/sh\n{tool}\n")
    path.chmod(0o755)
    monkeypatch.setattr(audit, "TOOL", path)
    monkeypatch.setattr(audit, "TIMEOUT_SECONDS", 2.0 if tool.startswith("sleep") else 60.0)
    assert audit.main([]) == code
    assert expected_output in capsys.readouterr().out
