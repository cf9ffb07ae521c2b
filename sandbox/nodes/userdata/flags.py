"""Kubelet flags, as AL2's bootstrap script, PowerShell and NodeConfig's `kubelet.flags` carry them."""

import shlex
from collections.abc import Iterable
from typing import Any

from sandbox.nodes.userdata.join import UserDataError, parse_pairs, parse_taints


def split_flags(words: Iterable[str]) -> dict[str, str]:
    """`--name=value` and `--name value` alike; a flag without a value is `true`. What is no flag is passed over."""
    flags: dict[str, str] = {}
    waiting = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags[name] = value.strip("\"'") if equals else "true"
            waiting = "" if equals else name
        elif waiting:
            flags[waiting] = word
            waiting = ""
    return flags


def split_text(text: str) -> dict[str, str]:
    """The flags of one line. Quotes inside values are the shell's."""
    return split_flags(shlex.split(text))


def settings_of(flags: dict[str, str]) -> dict[str, Any]:
    """Those fields of `Join` that the flags set. Raises UserDataError for malformed pairs."""
    found: dict[str, Any] = {}
    if "node-labels" in flags:
        found["labels"] = parse_pairs(flags["node-labels"])
    if "register-with-taints" in flags:
        found["taints"] = parse_taints(flags["register-with-taints"])
    for flag, name in (("max-pods", "max_pods"), ("pods-per-core", "pods_per_core")):
        if flag in flags:
            found[name] = _number(flag, flags[flag])
    for flag, name in (("kube-reserved", "kube_reserved"), ("system-reserved", "system_reserved")):
        if flag in flags:
            found[name] = parse_pairs(flags[flag])
    if "eviction-hard" in flags:
        found["eviction_hard"] = parse_pairs(flags["eviction-hard"], "<")
    return found


def _number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserDataError(f"--{flag}: {text!r} is no number") from None
