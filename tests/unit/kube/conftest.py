"""Fixtures for tests of the Kubernetes adapters."""

from tests.support.logs import plain_log

__all__ = ["plain_log"]
