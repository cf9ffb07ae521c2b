"""MIME user data for AL2 and AL2023: the custom parts in their order, then Tenure's part.

Custom parts keep all headers, because cloud-init reads more than the content type.
"""

import io
import itertools
from collections.abc import Iterable
from email import message_from_string
from email.errors import CloseBoundaryNotFoundDefect
from email.generator import Generator
from email.message import Message
from typing import Final

from tenure.aws.amifamily.user_data.config import UserDataError

SHELL_TYPE: Final = 'text/x-shellscript; charset="us-ascii"'
_BOUNDARY: Final = "//"
_MAX_DIGITS: Final = 6
"""Of the number after it; user data has fewer lines."""
_HEADS: Final = ("mime-version:", "content-type:")


def is_mime(text: str) -> bool:
    return text.lstrip().lower().startswith(_HEADS)


def parse_message(text: str) -> Message:
    """The MIME message, with its defects. As in Karpenter, the last boundary line may lack its final `--`."""
    parsed, text = message_from_string(text.lstrip()), text.strip()
    is_open = any(isinstance(one, CloseBoundaryNotFoundDefect) for one in parsed.defects)
    if is_open and text.rpartition("\n")[2] == f"--{parsed.get_boundary()}":
        return message_from_string(f"{text}--\n")
    return parsed


def make_part(content_type: str, body: str) -> Message:
    made = Message()
    made["Content-Type"] = content_type
    made.set_payload(body)
    return made


def parts_of(text: str) -> list[Message]:
    """The leaves of a multipart message, in order. Raises UserDataError for other text."""
    parsed = parse_message(text)
    if not parsed.is_multipart():
        raise UserDataError("spec.userData: MIME, but not a multipart message; check its boundary lines")
    return [leaf for leaf in parsed.walk() if not leaf.is_multipart()]


def decode_part(part: Message) -> str:
    """The content of a leaf; empty if it cannot be decoded."""
    body = part.get_payload(decode=True)
    return body.decode(errors="replace") if isinstance(body, bytes) else ""


def join_parts(parts: Iterable[Message]) -> str:
    """Join parts into a multipart message without carriage returns.

    The result is deterministic, because the launch template's name is a hash of it.
    """
    part_list = list(parts)
    message = Message()
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = f'multipart/mixed; boundary="{_choose_boundary(part_list)}"'
    for one in part_list:
        message.attach(one)
    return _message_text(message).replace("\r", "")


def _choose_boundary(parts: Iterable[Message]) -> str:
    """Choose a boundary that no line of a part starts with; such a line would end the part."""
    lines = [line for one in parts for line in str(one.get_payload()).splitlines()]
    ends = [line.removeprefix(f"--{_BOUNDARY}") for line in lines if line.startswith(f"--{_BOUNDARY}")]
    taken = {end[:length] for end in ends for length in range(_MAX_DIGITS + 1)}
    candidates = itertools.chain(("",), map(str, itertools.count(1)))
    return _BOUNDARY + next(one for one in candidates if one not in taken)


def _message_text(message: Message) -> str:
    """Render without changes to the text: no line folding, and no escaping of lines that start with From."""
    out = io.StringIO()
    Generator(out, mangle_from_=False, maxheaderlen=0).flatten(message)
    return out.getvalue()
