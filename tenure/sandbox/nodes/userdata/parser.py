"""Detect the format of user data: MIME parts, a bare NodeConfig, Bottlerocket's TOML, scripts."""

import email
from dataclasses import dataclass, field
from email.message import Message

from tenure.sandbox.nodes.userdata.bottlerocket import has_settings, read_settings
from tenure.sandbox.nodes.userdata.kubelet_join import Join
from tenure.sandbox.nodes.userdata.nodeadm import MEDIA_TYPE, read_node_configs
from tenure.sandbox.nodes.userdata.scripts import read_scripts


@dataclass
class _Parts:
    node_configs: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)


def read_user_data(text: str) -> Join | None:
    """How the machine joins, or None if its user data names no cluster. Raises UserDataError."""
    if has_settings(text):
        return read_settings(text)
    parts = _split(text)
    joined = read_node_configs(parts.node_configs) if parts.node_configs else None
    return joined or read_scripts("\n".join(parts.scripts))


def _split(text: str) -> _Parts:
    head = text.lstrip()
    parts = _Parts()
    if head.lower().startswith(("mime-version:", "content-type:")):
        for part in email.message_from_string(head).walk():
            _sort_in(part, parts)
    elif "kind: NodeConfig" in head:
        parts.node_configs.append(head)
    else:
        parts.scripts.append(text)
    return parts


def _sort_in(part: Message, parts: _Parts) -> None:
    if part.is_multipart():
        return
    payload = part.get_payload(decode=True)
    body = payload.decode(errors="replace") if isinstance(payload, bytes) else ""
    if part.get_content_type() == MEDIA_TYPE:
        parts.node_configs.append(body)
    else:
        parts.scripts.append(body)
