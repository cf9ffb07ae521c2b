"""Windows: one PowerShell block. The user's lines come first, then the image's own bootstrap script."""

from aws.user_data.parts import Bootstrap, kubelet_flags

_SCRIPT = r"[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1\""


def render_windows(bootstrap: Bootstrap) -> str:
    """A block of its own in the user's data is taken off, since there can be one only."""
    custom = bootstrap.custom.strip().removeprefix("<powershell>").removesuffix("</powershell>").strip()
    words = [
        "& $EKSBootstrapScriptFile",
        f"-EKSClusterName '{bootstrap.cluster.name}'",
        f"-APIServerEndpoint '{bootstrap.cluster.endpoint}'",
    ]
    if bootstrap.cluster.ca_bundle:
        words.append(f"-Base64ClusterCA '{bootstrap.cluster.ca_bundle}'")
    words.append(f"-KubeletExtraArgs '{' '.join(kubelet_flags(bootstrap))}'")
    if bootstrap.dns:
        words.append(f"-DNSClusterIP '{bootstrap.dns[0]}'")
    lines = ["<powershell>", *([custom] if custom else []), _SCRIPT.replace('\\"', '"'), " ".join(words)]
    return "\n".join([*lines, "</powershell>"]) + "\n"
