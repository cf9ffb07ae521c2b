"""Parses YAML and TOML of user data, with limits of length and nesting. Any invalid text raises UserDataError.

EC2 rejects user data of more than 16 KiB, so longer text is rejected before parsing. Deep nesting would take the
parsers quadratic time and end in a RecursionError.
"""

from collections.abc import Callable
from typing import Any, Final

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from tenure.aws.amifamily.user_data.config import LIMIT, UserDataError

MAX_NESTING: Final = 100
_YAML_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser of libyaml takes a tenth of the time. Wheels of PyYAML have it."""


def load_yaml(text: str) -> Any:
    """The first document. Raises UserDataError."""
    return _load(text, lambda: next(iter(yaml.load_all(text, Loader=_YAML_LOADER)), None))


def load_toml(text: str) -> dict[str, Any]:
    """Raises UserDataError."""
    found: dict[str, Any] = _load(text, lambda: tomlkit.parse(text).unwrap())
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
    except TOMLKitError as error:
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


def _describe_yaml_error(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
