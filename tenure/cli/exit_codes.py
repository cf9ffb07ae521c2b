"""The exit codes and errors of commands. `main.py` ends the process with them."""

import os
import re
import signal
import sys
from collections.abc import Iterable
from difflib import get_close_matches

from typer import TyperException

DONE, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """Invalid input or an unreachable service. The message is one line that names the option or address."""


class CommandFailed(Exception):
    """A failed operation. The message may have several lines."""


def suggest(name: str, known: Iterable[str]) -> str:
    """`, did you mean get?`, or an empty text."""
    similar = get_close_matches(name, list(known), cutoff=0.6)
    return f", did you mean {' or '.join(similar)}?" if similar else ""


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, UsageError):
        return USAGE_ERROR
    if isinstance(error, TyperException):
        return error.exit_code
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def format_error(error: BaseException, command: str) -> str:
    """Starts with the command name, to distinguish errors in a pipeline."""
    if isinstance(error, TyperException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else command
        message = error.format_message()
        if message.startswith("Usage: "):
            return message  # Several lines: the help of a group.
        message = _simplify_message(" ".join(message.split()).replace("Value error, ", ""))
        return f"{path}: {message} (see `{path} --help`)"
    return f"{command}: {error}"


def _simplify_message(message: str) -> str:
    """Without the wording of the validation library."""
    return re.sub(r", unable to parse string as an? \w+", "", message.replace("Input should be", "must be"))


def exit_process(code: int) -> None:
    """End the process at once: the Temporal client's threads can abort an interpreter that shuts down."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            continue
    os._exit(code)


def end_like_ctrl_c() -> list[int]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP too, for commands with child processes. Call it before they start.

    Returns a list to which these signals are added: Python ignores an error that is raised in a destructor or a
    callback. Background jobs of a script inherit an ignored SIGINT. A SIGHUP that `nohup` ignores stays ignored.
    """
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    return received
