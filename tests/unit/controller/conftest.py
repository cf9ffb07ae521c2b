"""Fixtures for tests of the controller."""

from tests.support.logs import plain_log

__all__ = ["plain_log"]
