"""Scripts of AL2 (bootstrap.sh), of Windows (PowerShell), and of custom images that call either; and kubelet flags.

NodeConfig's `kubelet.flags` have the same format.
"""

import re
import shlex
from collections.abc import Iterable
from typing import Any

from tenure.sandbox.nodes.userdata.kubelet_join import Join, UserDataError, parse_pairs, parse_taints


def split_flags(arguments: Iterable[str]) -> dict[str, str]:
    """`--name=value` and `--name value` are equivalent; a flag without a value is `true`. Other words are ignored."""
    flags: dict[str, str] = {}
    waiting = ""
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            flags[name] = value.strip("\"'") if equals else "true"
            waiting = "" if equals else name
        elif waiting:
            flags[waiting] = argument
            waiting = ""
    return flags


def split_text(text: str) -> dict[str, str]:
    """Parse the flags of one line. Quotes inside values follow shell rules."""
    return split_flags(shlex.split(text))


def settings_of(flags: dict[str, str]) -> dict[str, Any]:
    """Fields of `Join` that the flags set. Raises UserDataError for malformed pairs."""
    found: dict[str, Any] = {}
    if "node-labels" in flags:
        found["labels"] = parse_pairs(flags["node-labels"])
    if "register-with-taints" in flags:
        found["taints"] = parse_taints(flags["register-with-taints"])
    for flag, name in (("max-pods", "max_pods"), ("pods-per-core", "pods_per_core")):
        if flag in flags:
            found[name] = _parse_number(flag, flags[flag])
    for flag, name in (("kube-reserved", "kube_reserved"), ("system-reserved", "system_reserved")):
        if flag in flags:
            found[name] = parse_pairs(flags[flag])
    if "eviction-hard" in flags:
        found["eviction_hard"] = parse_pairs(flags["eviction-hard"], "<")
    return found


def _parse_number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserDataError(f"--{flag}: {text!r} is not a number") from None


_BOOTSTRAP = re.compile(r"^\s*(?:sudo\s+)?(?:exec\s+)?\S*bootstrap\.sh\s+(.*)$", re.MULTILINE)
_POWERSHELL = re.compile(r"-(EKSClusterName|KubeletExtraArgs)\s+('[^']*'|\"[^\"]*\"|\S+)")
# Option of bootstrap.sh that contains kubelet flags in a single word.
_KUBELET = "kubelet-extra-args"


def read_scripts(text: str) -> Join | None:
    """The join of the scripts; None if they call no bootstrap. Raises UserDataError."""
    return _parse_powershell(text) or _parse_shell(text.replace("\\\n", " "))


def _parse_shell(text: str) -> Join | None:
    calls = _BOOTSTRAP.findall(text)
    if not calls:
        return None
    try:
        arguments = shlex.split(calls[-1])
    except ValueError as error:
        raise UserDataError(f"bootstrap.sh: {error}") from None
    if not arguments or arguments[0].startswith("--"):
        raise UserDataError("bootstrap.sh: the first argument must be the cluster's name")
    flags = _parse_options(arguments[1:])
    fields = settings_of(split_text(flags.get(_KUBELET, "")))
    raid0 = flags.get("local-disks") == "raid0"
    return Join(cluster=arguments[0], raid0=raid0, os_image="Amazon Linux 2", **fields)


def _parse_options(arguments: list[str]) -> dict[str, str]:
    """Every option of bootstrap.sh has a value, which may start with dashes."""
    found: dict[str, str] = {}
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.removeprefix("--").partition("=")
        found[name] = value if equals else next(remaining, "")
    return found


def _unquote(value: str) -> str:
    """Remove the outer quotes; inner quotes belong to the value."""
    return value[1:-1] if value[:1] in ("'", '"') else value


def _parse_powershell(text: str) -> Join | None:
    found = {name: _unquote(value) for name, value in _POWERSHELL.findall(text)}
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
