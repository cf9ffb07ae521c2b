"""Windows: one PowerShell block. The user's lines come first, then the image's own bootstrap script."""

from tenure.aws.amifamily.user_data.config import Bootstrap, kubelet_flags

_SCRIPT = r'[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"'


def render_windows(bootstrap: Bootstrap) -> str:
    """A block of its own in the user's data is taken off, since there can be one only."""
    custom = bootstrap.custom.strip().removeprefix("<powershell>").removesuffix("</powershell>").strip()
    cluster = bootstrap.cluster
    arguments = {
        "EKSClusterName": cluster.name,
        "APIServerEndpoint": cluster.endpoint,
        "Base64ClusterCA": cluster.ca_bundle,
        "KubeletExtraArgs": " ".join(kubelet_flags(bootstrap)),
        "DNSClusterIP": bootstrap.dns[0] if bootstrap.dns else "",
    }
    call = " ".join(
        [
            "& $EKSBootstrapScriptFile",
            *(f"-{name} {_quote_powershell(value)}" for name, value in arguments.items() if value),
        ]
    )
    return "\n".join(["<powershell>", *([custom] if custom else []), _SCRIPT, call, "</powershell>"]) + "\n"


def _quote_powershell(value: str) -> str:
    """As a PowerShell literal, in which a quote is doubled."""
    return "'" + value.replace("'", "''") + "'"
