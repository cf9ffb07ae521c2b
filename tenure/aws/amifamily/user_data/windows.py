"""Windows: one PowerShell block. Custom user data comes first, then the image's bootstrap script."""

from tenure.aws.amifamily.user_data.config import Bootstrap, kubelet_flags

_SCRIPT = r'[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"'


def render_windows(bootstrap: Bootstrap) -> str:
    """Remove the tags of a block in the custom user data, because only one block is allowed."""
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
    """Format as a PowerShell literal, in which quotes are doubled."""
    return "'" + value.replace("'", "''") + "'"
