"""Write generated files: `python -m tools.generate`.

CRDs come from the models, parts of the Helm charts from the sources that `tools/charts.py` names. The reference
pages, the dashboard and docs/life.svg come from the code, example outputs from the product's renderers, and the stack
of the worker's role from deploy/iam.

With `--check` nothing is written, and the exit code is 1 if a file is outdated.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from tools import charts as helm
from tools import cloudformation_role
from tools.crds import reference
from tools.crds.kinds import KINDS, Kind
from tools.crds.schema import root_schema
from tools.docs import completions, examples, lifecycle_diagram, settings
from tools.docs.reference import FOLDER, render_pages, wrap_page
from tools.metrics import dashboard

_HEADER = "# Written by `python -m tools.generate` from tenure/apis: change the models, not this file.\n"


def build_crd(kind: Kind) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": _crd_names(kind),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_crd_version(kind, name) for name in (kind.version, *kind.also_served)],
        },
    }


def _crd_version(kind: Kind, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": name == kind.version,
        "schema": {"openAPIV3Schema": root_schema(kind.model)},
        "subresources": _crd_subresources(kind),
        "additionalPrinterColumns": [column.as_object() for column in kind.columns],
    }


def crd_text(kind: Kind) -> str:
    return _HEADER + yaml.dump(build_crd(kind), Dumper=_NoAliases, width=110, allow_unicode=True)


def render_files() -> dict[Path, str]:
    """Content of each generated file."""
    crds = {kind.file: crd_text(kind) for kind in KINDS}
    charts = helm.render_files({path.name: text for path, text in crds.items()})
    found = {
        **crds,
        **charts,
        **render_pages(),
        FOLDER / "karpenter-settings.md": settings.karpenter_page(),
        **reference.render_pages(),
        **examples.render_files(),
        **{one.FILE: one.text() for one in (completions, dashboard, lifecycle_diagram, settings, cloudformation_role)},
    }
    return {path: wrap_page(text) if FOLDER in path.parents else text for path, text in found.items()}


def find_outdated_files() -> list[Path]:
    """Files that are missing, differ from their source, or no longer have a source."""
    outdated = [path for path, text in render_files().items() if not path.exists() or path.read_text() != text]
    return outdated + helm.find_stale_files({kind.file.name: "" for kind in KINDS})


def write() -> None:
    """Write all files, and remove files that no longer have a source."""
    for path, text in render_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in helm.find_stale_files({kind.file.name: "" for kind in KINDS}):
        path.unlink()


def _crd_names(kind: Kind) -> dict[str, Any]:
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "categories": [kind.category],
    }
    return names | ({"shortNames": list(kind.short_names)} if kind.short_names else {})


def _crd_subresources(kind: Kind) -> dict[str, Any]:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}
    return {"status": {}} | ({"scale": scale} if kind.scale else {})


class _NoAliases(yaml.SafeDumper):
    """Repeats equal parts, because not every reader of CRDs supports YAML anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        write()
        return 0
    for path in find_outdated_files():
        print(f"{path.name} is outdated: run python -m tools.generate", file=sys.stderr)
    return 1 if find_outdated_files() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
