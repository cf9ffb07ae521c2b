"""Options, markers and Hypothesis profiles for all tests. It imports nothing of Tenure, so one test starts fast.

Fixtures that need real components are loaded by the `conftest.py` of the folders whose tests use them.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
TIERS = ("unit", "replay", "adapters", "smoke", "integration", "scenarios", "chaos", "nightly")
"""Folders below `tests/`. Every test gets the name of its folder as a marker."""
REAL_COMPONENTS = {"adapters", "smoke", "integration", "scenarios", "chaos"}
TIMEOUT_SECONDS = 900.0
"""For one test with real components. Each wait inside the test has its own, shorter timeout."""

# The duration of an example depends on how busy the machine is, so no profile has a deadline.
SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", SHARED, max_examples=25)
settings.register_profile("full", SHARED, max_examples=100)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tenure")
    group.addoption("--property-depth", choices=("fast", "full"), default="fast", help="number of Hypothesis examples")
    group.addoption("--kill-seed", type=int, help="kill the worker once in each scenario, at a time this seed selects")
    group.addoption("--temporal", choices=("dev", "postgres"), default="dev", help="Temporal server of the sandbox")
    group.addoption("--encrypted", action="store_true", help="encrypt the payloads that Temporal stores")
    group.addoption("--times", type=int, default=1, help="run each test this many times")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(config.getoption("--property-depth"))
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: the test is in tests/{tier}")
    config.addinivalue_line("markers", "sandbox: needs real components")
    config.addinivalue_line("markers", "last: looks at what the whole run leaves behind")
    config.addinivalue_line("markers", "killable: its worker is killed once when the run has a --kill-seed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (times := metafunc.config.getoption("--times")) > 1:
        metafunc.fixturenames.append("attempt")
        metafunc.parametrize("attempt", range(times))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        tier = item.path.relative_to(ROOT).parts[0]
        item.add_marker(tier)
        if tier in REAL_COMPONENTS:
            item.add_marker("sandbox")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
