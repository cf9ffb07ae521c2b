"""Injected errors: functions that fail for some arguments, and name resolution that fails."""

import socket
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import pytest

INJECTED: Final = ZeroDivisionError("injected")


def fail_for(
    monkeypatch: pytest.MonkeyPatch, path: str, is_bad: Callable[[Any], bool], error: Exception = INJECTED
) -> None:
    """The function at `path` raises `error` if one of its arguments is bad."""
    module, _, name = path.rpartition(".")
    original = getattr(import_module(module), name)

    def replacement(*args: Any, **kwargs: Any) -> Any:
        if any(is_bad(one) for one in args):
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(path, replacement)


def named(name: str) -> Callable[[Any], bool]:
    return lambda one: getattr(one, "name", "") == name


def lose_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", fail_to_resolve)


def fail_to_resolve(*_: Any, **__: Any) -> Any:
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
