"""MIME user data, as AL2 and AL2023 read it: the user's parts in their order, then ours.

Parts keep their headers, since cloud-init reads more of them than the content type.
"""

import io
import itertools
from collections.abc import Iterable
from email import message_from_string
from email.generator import Generator
from email.message import Message
from typing import Final

from tenure.aws.amifamily.user_data.config import UserDataError

SHELL_TYPE: Final = 'text/x-shellscript; charset="us-ascii"'
_BOUNDARY: Final = "//"
_HEADS: Final = ("mime-version:", "content-type:")


def is_mime(text: str) -> bool:
    return text.lstrip().lower().startswith(_HEADS)


def make_part(content_type: str, body: str) -> Message:
    made = Message()
    made["Content-Type"] = content_type
    made.set_payload(body)
    return made


def parts_of(text: str) -> list[Message]:
    """The leaves of a multipart message, in order. Raises UserDataError when it is none."""
    parsed = message_from_string(text.lstrip())
    if not parsed.is_multipart():
        raise UserDataError("spec.userData: begins like MIME and is no multipart message; check its boundary lines")
    return [leaf for leaf in parsed.walk() if not leaf.is_multipart()]


def join_parts(parts: Iterable[Message]) -> str:
    """One multipart message, without carriage returns: the same for the same parts, since a template is named by it."""
    part_list = list(parts)
    message = Message()
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = f'multipart/mixed; boundary="{_choose_boundary(part_list)}"'
    for one in part_list:
        message.attach(one)
    return _message_text(message).replace("\r", "")


def _choose_boundary(parts: Iterable[Message]) -> str:
    """One that no line of any part begins with, which would end the part there."""
    lines = [line for one in parts for line in str(one.get_payload()).splitlines()]
    candidates = itertools.chain((_BOUNDARY,), (f"{_BOUNDARY}{number}" for number in itertools.count(1)))
    return next(one for one in candidates if not any(line.startswith(f"--{one}") for line in lines))


def _message_text(message: Message) -> str:
    """Unchanged text: no line folding, and no escaping of lines that begin with From."""
    out = io.StringIO()
    Generator(out, mangle_from_=False, maxheaderlen=0).flatten(message)
    return out.getvalue()
