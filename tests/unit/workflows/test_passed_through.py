"""What runs outside of the SDK's module sandbox is on one list; the sandbox looks at what sandboxed modules import."""

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from workflows.runner import PASSED_THROUGH

PASSED = sorted(
    file
    for name in PASSED_THROUGH
    for file in [*ROOT.glob(f"{name.replace('.', '/')}.py"), *ROOT.glob(f"{name.replace('.', '/')}/**/*.py")]
)
OURS = ("activities", "tenure", "workflows")


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def imported(file: Path) -> set[str]:
    """Our own modules that it imports when it is loaded."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {one.name: f"{node.module}.{one.name}" for one in node.names}
            found |= {name if is_module(name) else node.module for name in names.values()}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return {name for name in found if name.split(".")[0] in OURS}


def is_passed(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in PASSED_THROUGH)


@pytest.mark.parametrize("file", [file for file in PASSED if "workflows" in file.parts], ids=lambda file: file.stem)
def test_what_passes_through_imports_only_what_does(file: Path) -> None:
    assert {module for module in imported(file) if not is_passed(module)} == set()


def test_nodes_workflows_are_among_them() -> None:
    assert {"nodeclaim.py", "command.py", "nodeclaim_context.py"} <= {file.name for file in PASSED}
