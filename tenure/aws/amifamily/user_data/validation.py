"""Validates that `spec.userData` has a format of its image family.

Scripts are not checked, because their effect is unknown. Invalid MIME, YAML or TOML and the formats of other families
are rejected. The family Custom accepts any text.
"""

from email import errors
from typing import Final

from tenure.aws.amifamily.families import CUSTOM, Family
from tenure.aws.amifamily.user_data.bottlerocket import dropped_settings
from tenure.aws.amifamily.user_data.config import LIMIT, UserDataError, replace_surrogates, why_too_large
from tenure.aws.amifamily.user_data.documents import load_toml, load_yaml
from tenure.aws.amifamily.user_data.mime import decode_part, is_mime, parse_message

FIELD: Final = "spec.userData"
_NEAR: Final = 0.9
_NODE_CONFIG: Final = "node.eks.aws"
_BROKEN: Final = (
    errors.StartBoundaryNotFoundDefect,
    errors.CloseBoundaryNotFoundDefect,
    errors.NoBoundaryInMultipartDefect,
    errors.MultipartInvariantViolationDefect,
)


def why_unreadable(text: str, family: Family) -> str:
    """The problem, starting with the field; empty if valid."""
    if problem := why_too_large(text):
        return problem
    if family is CUSTOM or not text.strip():
        return ""
    text = replace_surrogates(text)
    if family.name == "Bottlerocket":
        problem = _why_no_settings(text)
    elif family.os == "windows":
        problem = _why_no_powershell(text)
    else:
        problem = _why_no_mime(text, family) if is_mime(text) else _why_no_part(text, family)
    return f"{FIELD}: {problem}" if problem else ""


def why_settings_dropped(text: str, family: Family) -> str:
    """A warning that names the settings that the node does not get. `text`: valid user data."""
    dropped = dropped_settings(text) if family.name == "Bottlerocket" and text.strip() else []
    if not dropped:
        return ""
    return f"{FIELD}: settings.kubernetes: {', '.join(dropped)}: Bottlerocket does not document it, so it is dropped"


def why_near_limit(size: int) -> str:
    """A warning if the rendered user data is close to EC2's limit. `size`: bytes, with Tenure's additions."""
    if not _NEAR * LIMIT <= size <= LIMIT:
        return ""
    return f"{FIELD}: {size} bytes with Tenure's additions, close to the limit of {LIMIT}; move parts into the image"


def _why_no_settings(text: str) -> str:
    try:
        document = load_toml(text)
    except UserDataError as error:
        return f"invalid TOML, which Bottlerocket requires: {error}"
    settings = document.get("settings", {})
    if not isinstance(settings, dict):
        return "settings must be a table, such as [settings.kubernetes]"
    if not isinstance(settings.get("kubernetes", {}), dict):
        return "settings.kubernetes must be a table"
    return ""


def _why_no_powershell(text: str) -> str:
    other = "MIME" if is_mime(text) else _other_form(text, ())
    if other:
        return f"{other}, but Windows requires PowerShell in a <powershell> block"
    opened, closed = text.count("<powershell>"), text.count("</powershell>")
    if opened != closed or opened > 1:
        return f"found {opened} <powershell> and {closed} </powershell> tags, expected one of each, or none"
    return ""


def _why_no_mime(text: str, family: Family) -> str:
    parsed = parse_message(text)
    broken = next((one for one in parsed.defects if isinstance(one, _BROKEN)), None)
    if broken is not None:
        defect_name = type(broken).__name__.removesuffix("Defect")
        return f"invalid MIME ({defect_name}); check its boundary lines, of which the last ends with --"
    if not parsed.is_multipart():
        return "MIME, but not a multipart message; check its boundary lines"
    for number, part in enumerate((one for one in parsed.walk() if not one.is_multipart()), 1):
        problem = _why_no_node_config(decode_part(part), family) if _NODE_CONFIG in part.get_content_type() else ""
        if problem:
            return f"MIME part {number}: {problem}"
    return ""


def _why_no_part(text: str, family: Family) -> str:
    """Check text that is not MIME: a NodeConfig if the family supports it, else a shell script."""
    if _NODE_CONFIG in text.partition("spec:")[0] and not text.lstrip().startswith("#!"):
        return _why_no_node_config(text, family)
    other = _other_form(text, ("<powershell>", "settings"))
    return f"{other}, but {family.name} requires a shell script or MIME" if other else ""


def _why_no_node_config(text: str, family: Family) -> str:
    if family.name != "AL2023":
        return f"NodeConfig is only supported by AL2023, {family.name} requires a shell script or MIME"
    try:
        found = load_yaml(text)
    except UserDataError as error:
        return f"invalid YAML in the NodeConfig: {error}"
    if not isinstance(found, dict) or found.get("kind") != "NodeConfig":
        return "a part for nodeadm must be YAML of kind NodeConfig"
    if not isinstance(found.get("spec") or {}, dict):
        return "the NodeConfig's spec must be a map of fields"
    return ""


def _other_form(text: str, more: tuple[str, ...]) -> str:
    """Name a format that is certainly not a shell script; empty for text that may be one.

    `more`: further formats to detect; without them, a #! line counts as another format.
    """
    head = text.lstrip()
    if head.startswith("#!") and not more:
        return "a script with a #! line"
    if head.startswith("#cloud-config"):
        return "cloud-config outside of a MIME part"
    if "<powershell>" in more and head.startswith(("<powershell>", "<script>")):
        return "a PowerShell block for Windows"
    if _is_settings(head):
        return "TOML settings for Bottlerocket"
    return ""


def _is_settings(text: str) -> bool:
    try:
        return "settings" in load_toml(text)
    except UserDataError:
        return False
