"""AL2's bootstrap script, Windows' PowerShell form of it, and custom images that call either."""

import re
import shlex

from sandbox.nodes.userdata.flags import settings_of, split_text
from sandbox.nodes.userdata.join import Join, UserDataError

_BOOTSTRAP = re.compile(r"^\s*(?:sudo\s+)?(?:exec\s+)?\S*bootstrap\.sh\s+(.*)$", re.MULTILINE)
_POWERSHELL = re.compile(r"-(EKSClusterName|KubeletExtraArgs)\s+('[^']*'|\"[^\"]*\"|\S+)")
# Flags of bootstrap.sh that carry the kubelet's ones in a single word.
_KUBELET = "kubelet-extra-args"


def read_scripts(text: str) -> Join | None:
    """The join that the scripts would do; None when they call no bootstrap. Raises UserDataError."""
    return _powershell(text) or _shell(text.replace("\\\n", " "))


def _shell(text: str) -> Join | None:
    calls = _BOOTSTRAP.findall(text)
    if not calls:
        return None
    try:
        words = shlex.split(calls[-1])
    except ValueError as error:
        raise UserDataError(f"bootstrap.sh: {error}") from None
    if not words or words[0].startswith("--"):
        raise UserDataError("bootstrap.sh: the first argument must be the cluster's name")
    flags = _options(words[1:])
    fields = settings_of(split_text(flags.get(_KUBELET, "")))
    raid0 = flags.get("local-disks") == "raid0"
    return Join(cluster=words[0], raid0=raid0, os_image="Amazon Linux 2", **fields)


def _options(words: list[str]) -> dict[str, str]:
    """Every option of bootstrap.sh takes a value, which may itself begin with dashes."""
    found: dict[str, str] = {}
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.removeprefix("--").partition("=")
        found[name] = value if equals else next(remaining, "")
    return found


def _bare(value: str) -> str:
    """Without the outer quotes; those within belong to the value."""
    return value[1:-1] if value[:1] in ("'", '"') else value


def _powershell(text: str) -> Join | None:
    found = {name: _bare(value) for name, value in _POWERSHELL.findall(text)}
    cluster = found.get("EKSClusterName")
    if not cluster:
        return None
    fields = settings_of(split_text(found.get("KubeletExtraArgs", "")))
    return Join(
        cluster=cluster,
        system="windows",
        reserves_by_max_pods=True,
        data_device="/dev/sda1",
        os_image="Windows Server 2022 Datacenter",
        **fields,
    )
