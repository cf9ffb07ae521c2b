"""Writes kubeconfig files: for the sandbox's admin, its components, and service accounts."""

import base64
import json
from pathlib import Path


def write_kubeconfig(
    path: Path, *, server: str, token: str, authority: Path | None, namespace: str = "default"
) -> Path:
    """One cluster, one user with a bearer token, one context. `authority` is a PEM file, or None for plain HTTP."""
    cluster: dict[str, str] = {"server": server}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority.read_bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox", "namespace": namespace}}],
        "current-context": "sandbox",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # JSON is YAML, and is written in microseconds.
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def read_kubeconfig(path: Path) -> tuple[str, str, Path | None]:
    """Server, token and the authority's PEM file (written beside it) of a file that `write_kubeconfig` made."""
    content = json.loads(path.read_text())
    cluster, token = content["clusters"][0]["cluster"], content["users"][0]["user"]["token"]
    encoded = cluster.get("certificate-authority-data")
    if encoded is None:
        return cluster["server"], token, None
    authority = path.with_suffix(".crt")
    authority.write_bytes(base64.b64decode(encoded))
    return cluster["server"], token, authority
