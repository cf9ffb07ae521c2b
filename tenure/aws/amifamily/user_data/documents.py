"""Parses YAML and TOML of user data, with limits of length and nesting. Any invalid text raises UserDataError.

EC2 rejects user data of more than 16 KiB, so longer text is rejected before parsing. Deep nesting and long dotted keys
would take the parsers quadratic time, and merge keys (`<<`) exponential time.
"""

import re
import tomllib
from collections.abc import Callable
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

from tenure.aws.amifamily.user_data.config import LIMIT, UserDataError

MAX_NESTING: Final = 100
MAX_KEY_PARTS: Final = 16
"""Parts of a dotted TOML key. Settings of Bottlerocket have at most seven."""
_KEY_PART: Final = re.compile(r"[\w\-\"' \t]*")
_SAFE_LOADER: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser of libyaml takes a tenth of the time. Wheels of PyYAML have it."""


class _BoundedLoader(_SAFE_LOADER):  # type: ignore[misc, valid-type]
    """Rejects mappings that merge keys multiply beyond the number of characters that user data can have."""

    keys = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        self.keys += len(node.value)
        if self.keys > LIMIT:
            raise ConstructorError(None, None, f"merge keys yield more than {LIMIT} keys", node.start_mark)


def load_yaml(text: str) -> Any:
    """The first document. Raises UserDataError."""
    return _load(text, lambda: next(iter(yaml.load_all(text, Loader=_BoundedLoader)), None))


def load_toml(text: str) -> dict[str, Any]:
    """Raises UserDataError."""
    if _count_key_parts(text) > MAX_KEY_PARTS:
        raise UserDataError(f"a key has more than {MAX_KEY_PARTS} parts")
    found: dict[str, Any] = _load(text, lambda: tomllib.loads(text))
    return found


def _load(text: str, parse: Callable[[], Any]) -> Any:
    if len(text) > LIMIT:
        raise UserDataError(f"{len(text)} characters, expected at most {LIMIT}")
    if _nesting(text) > MAX_NESTING:
        raise UserDataError(f"nested deeper than {MAX_NESTING} levels")
    try:
        return parse()
    except yaml.YAMLError as error:
        message = _describe_yaml_error(error)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
    except Exception as error:
        # PyYAML raises ValueError, KeyError, AttributeError and more for values such as `2026-13-45` or `!!bool x`.
        message = f"invalid value: {error}"
    raise UserDataError(" ".join(message.split())[:300])


def _nesting(text: str) -> int:
    """The maximum nesting of brackets. Brackets in strings count too, so the result may be too high."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth = max(0, depth - 1)
    return deepest


def _count_key_parts(text: str) -> int:
    """The parts of the longest dotted key, at least 2. Words in strings count too, so the result may be too high."""
    longest = parts = 2
    for part in text.split(".")[1:-1]:
        parts = parts + 1 if _KEY_PART.fullmatch(part) else 2
        longest = max(longest, parts)
    return longest


def _describe_yaml_error(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
