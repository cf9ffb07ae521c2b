"""`tenure validate`: objects of Tenure and Karpenter in files, checked as by the API server and the worker."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Final

import typer

from tenure.cli.command import command
from tenure.cli.exit_codes import DONE, FAILED
from tenure.cli.output import Result
from tenure.cli.simulate.manifests import describe_object, format_kinds, read_objects
from tenure.cli.validate.worker_checks import validate_object

Files = Annotated[list[Path], typer.Argument(help="Files in YAML or JSON, e.g. of `helm template`; - is stdin.")]
_STDIN: Final = Path("/dev/stdin")


@command
def validate(files: Files) -> Result:
    """Check NodePools, EC2NodeClasses and other kinds of Tenure in files, without a cluster."""
    checked, skipped, findings = 0, Counter[str](), list[dict[str, object]]()
    lines: list[object] = []
    for path in files:
        for one in read_objects(_STDIN if str(path) == "-" else path):
            found = validate_object(one)
            if found is None:
                skipped[str(one.get("kind") or "object")] += 1
                continue
            checked += 1
            source = {"file": str(path), "object": describe_object(one)}
            findings += [{**source, **finding.model_dump()} for finding in found[1]]
            lines += [f"{path}: {describe_object(one)}: {finding}" for finding in found[1]]
    summary = f"{checked} objects checked, {len(findings)} problems found"
    if skipped:
        summary += f"; skipped kinds that Tenure does not define: {format_kinds(skipped)}"
    data = {"valid": not findings, "checked": checked, "skipped": dict(skipped), "findings": findings}
    return Result(data, [*lines, summary], FAILED if findings else DONE)
