"""The generated parts of the Helm charts.

RBAC comes from `deploy/rbac`, CRDs from `deploy/crds`, alerts from `deploy/alerts`, the dashboard from `dashboard.py`,
and the schema of the settings from `tenure/settings.py`. `generate.py` writes them; all other files of the charts are
written by hand.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from deploy.resources import OPTIONAL_RBAC
from tenure.apis.feature_gates import FeatureGate
from tools.docs.settings import settings_schema
from tools.metrics import dashboard

HERE = Path(__file__).parents[1] / "deploy"
CHART = HERE / "charts" / "tenure"
CRD_CHART = HERE / "charts" / "tenure-crds"
SCHEMA = CHART / "values.schema.json"
RIGHTS = ("bindings", "clusterrole", "roles")
_HEADER = "# Written by `python -m tools.generate` from {source}: change that, not this file.\n"
_ACCOUNT = """- kind: ServiceAccount
  name: {{ include "tenure.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
"""
_LABELS = """  {{- include "tenure.annotations" (list .Values.additionalAnnotations) }}
  labels:
    {{- include "tenure.labels" . | nindent 4 }}
"""


def render_files(crds: Mapping[str, str]) -> dict[Path, str]:
    """Content of each generated file of the charts. `crds`: texts of `deploy/crds` by file name."""
    copied = {one: one.read_text() for one in sorted((HERE / "alerts").glob("*.yaml"))}
    copied[dashboard.FILE] = dashboard.text()
    return (
        {
            CHART / "templates" / "rights" / f"{name}.yaml": _render_rbac(HERE / "rbac" / f"{name}.yaml")
            for name in RIGHTS
        }
        | {
            CHART / "templates" / "rights" / file.name: _render_rbac(file, _settings_value(setting))
            for setting, file in OPTIONAL_RBAC.items()
        }
        | {CHART / "files" / one.parent.name / one.name: text for one, text in copied.items()}
        | {CRD_CHART / "templates" / name: _render_crd(name, text) for name, text in crds.items()}
        | {SCHEMA: _render_values_schema()}
    )


def find_stale_files(crds: Mapping[str, str]) -> list[Path]:
    """Files in generated folders that no longer have a source."""
    written = render_files(crds)
    folders = {path.parent for path in written} - {CHART}
    return sorted(path for folder in folders for path in folder.iterdir() if path not in written)


def _render_rbac(source: Path, setting: str = "") -> str:
    """`setting`: the chart grants the rights only if this value is true."""
    text = source.read_text().replace("- kind: ServiceAccount\n  name: tenure\n  namespace: tenure\n", _ACCOUNT)
    text = re.sub(r"^  name: tenure(-[a-z-]+)?$", r'  name: {{ include "tenure.fullname" . }}\1', text, flags=re.M)
    text = re.sub(r"^  namespace: tenure$", "  namespace: {{ .Release.Namespace }}", text, flags=re.M)
    text = text.replace("resourceNames: [tenure]", "resourceNames: [{{ .Release.Namespace }}]")
    documents = [_add_labels(one) for one in text.split("---\n")]
    header = _HEADER.format(source=source.relative_to(HERE.parent))
    condition = f"and .Values.rbac.create {setting}" if setting else ".Values.rbac.create"
    return f"{{{{- if {condition} }}}}\n{header}" + "---\n".join(documents) + "{{- end }}\n"


def _settings_value(name: str) -> str:
    """The value of a switch or a feature gate. A gate's map may be missing."""
    gate = next((one for one in FeatureGate if one.value == name), None)
    return f"(.Values.settings.{gate.variable}).{name}" if gate else f".Values.settings.{name.upper()}"


def _add_labels(document: str) -> str:
    if "\n  labels:\n" in document:
        return document.replace("\n  labels:\n", f"\n{_LABELS}", 1)
    return document.replace("\nmetadata:\n", f"\nmetadata:\n{_LABELS}", 1)


def _render_crd(name: str, text: str) -> str:
    """The CRD, with an annotation that keeps it when the chart is uninstalled."""
    metadata = "\nmetadata:\n{{- if .Values.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n{{- end }}\n"
    if "{{" in text:
        raise ValueError(f"deploy/crds/{name} holds '{{{{', which Helm would interpret as a template: rephrase it")
    body = text.partition("\n")[2]
    return _HEADER.format(source=f"deploy/crds/{name}") + body.replace("\nmetadata:\n", metadata, 1)


def _render_values_schema() -> str:
    """The existing schema with its `settings` replaced; the other parts are written by hand."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["settings"] = settings_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
