"""Compiles CEL expressions of users. The environment comes from cel_expr_python, which only its users import."""

from typing import Any, Final

from tenure.apis.durations import quote

MAX_QUOTED: Final = 100


def compile_expression(environment: Any, text: str, error: type[ValueError]) -> Any:
    """The compiled expression. Raises `error`, which quotes the expression, if it is invalid."""
    quoted = quote(text, MAX_QUOTED)
    try:
        text.encode()
        return environment.compile(text)
    except UnicodeEncodeError:
        raise error(f"{quoted} has an unpaired surrogate, expected Unicode text") from None
    except RuntimeError as problem:
        raise error(f"{quoted}: {_first_error(str(problem))[:MAX_QUOTED]}") from None


def _first_error(message: str) -> str:
    first = message.split("ERROR: ")[1:2] or [message]
    return first[0].partition("\n")[0].removeprefix("<input>:").partition(" [INVALID_ARGUMENT]")[0]
