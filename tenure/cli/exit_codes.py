"""How a command ends: with a code, and when it is the user's to mend, with one line that says what and where.

`main.py` turns these into the process's exit. 0: it is so; 1: it is not so (a demo or a check that failed); 2: wrong
input, or a cluster or service that is not there; 130: interrupted.

How a command that holds processes is ended: in one way, whatever asked for it.

`sandbox`, `demo` and what `held.py` waits for call `end_like_ctrl_c` before they start anything.
"""

import os
import signal
import sys

from typer import TyperException

DONE, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """Wrong input or a part that is not there. The message is one line and names the option, variable or address."""


class CommandFailed(Exception):
    """Something was tried and did not become true. The message may have several lines."""


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, UsageError):
        return USAGE_ERROR
    if isinstance(error, TyperException):
        return error.exit_code
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def format_error(error: BaseException, command: str) -> str:
    """What stderr is told, led by the command so that it can be told apart in a pipeline."""
    if isinstance(error, TyperException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else command
        message = error.format_message()
        if message.startswith("Usage: "):
            # The answer to a group without a command is its help, which has lines of its own.
            return message
        message = " ".join(message.split()).replace("Value error, ", "")
        return f"{path}: {message} (see `{path} --help`)"
    return f"{command}: {error}"


def exit_process(code: int) -> None:
    """End the process now. The Temporal client's threads can abort an interpreter that ends at leisure."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            continue
    os._exit(code)


def end_like_ctrl_c() -> None:
    """SIGTERM and a terminal that is closed raise KeyboardInterrupt, as Ctrl-C does.

    A script's `&` hands down an ignored SIGINT, which would let none of the three end the process. An ignored SIGHUP
    stays ignored: that is what `nohup` asks for.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
