"""Options, markers and Hypothesis profiles for all tests. It imports nothing of Tenure, so one test starts fast.

Fixtures that need real components are loaded by the `conftest.py` of the folders whose tests use them.
"""

import gc
import os
import signal
import time
import tomllib
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
TIERS = ("unit", "replay", "adapters", "smoke", "integration", "scenarios", "chaos", "nightly")
"""Folders below `tests/`. Every test gets the name of its folder as a marker."""
REAL_COMPONENTS = {"adapters", "smoke", "integration", "scenarios", "chaos"}
TIMEOUT_SECONDS = 900.0
"""Timeout of a test with real components. Each wait inside the test has its own, shorter timeout."""

STOP_TIMEOUT_SECONDS = 90.0
SHARED_SANDBOX = "shared-sandbox"
EXCLUSIVE_TESTS_DONE = "exclusive-tests-done"
OWN_SANDBOXES = 4
"""Sandboxes that run at the same time for tests that start, stop and kill workers."""
SLOW_TESTS: dict[str, str] = tomllib.loads((ROOT / "unit" / "slow_tests.toml").read_text())["slow"]
LONG_TESTS = {
    "test_failed_replacement_halts_rollout_until_approved",
    "test_node_of_an_ending_capacity_block_is_drained_and_replaced",
    "test_expiring_static_node_is_replaced_before_it_expires",
    "test_repeated_status_event_is_reported_once",
    "test_blocked_drain_follows_changes_of_its_pods_and_budgets",
    "test_changed_policy_applies_to_overdue_nodes",
    "test_nodeclaim_without_node_is_not_ready_and_is_replaced",
    "test_drain_ends_when_its_volume_is_released",
    "test_instance_that_never_registers_is_replaced_at_its_deadline",
    "test_rollout_soaks_the_first_wave_before_the_second",
}
"""Tests with the shared worker that take more than 90 seconds. They start first, so that none runs alone at the end."""
SERIAL_FIXTURES = ("endpoint", "shared_kit", "cluster")
"""Fixtures of servers with a single state, which their tests reset."""

# The duration of an example depends on how busy the machine is, so no profile has a deadline.
SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The default examples are fixed, so that a change is not blamed for a fault that it did not cause.
settings.register_profile("fast", SHARED, max_examples=25, derandomize=True)
settings.register_profile("full", SHARED, max_examples=100)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tenure")
    group.addoption("--property-depth", choices=("fast", "full"), default="fast", help="number of Hypothesis examples")
    group.addoption("--kill-seed", type=int, help="kill the worker once in each scenario, at a time this seed selects")
    group.addoption("--temporal", choices=("dev", "postgres"), default="dev", help="Temporal server of the sandbox")
    group.addoption("--encrypted", action="store_true", help="encrypt the payloads that Temporal stores")
    group.addoption("--row", help="run only the tests of this row of the scenarios")
    group.addoption("--replay-histories", action="store_true", help="replay the histories of each workflow test")
    group.addoption("--random-clusters", type=int, default=15, help="random clusters to compare with kube-scheduler")
    group.addoption("--first-seed", type=int, default=0, help="seed of the first random cluster")
    group.addoption("--results", type=Path, help="file with the results of random clusters, to which a run adds")
    group.addoption("--times", type=int, default=1, help="run each test this many times")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # Imports create hardly any garbage.
    settings.load_profile(config.getoption("--property-depth"))
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: the test is in tests/{tier}")
    config.addinivalue_line("markers", "sandbox: needs real components")
    config.addinivalue_line("markers", "property: a Hypothesis test")
    config.addinivalue_line("markers", "exact_counters: compares counters, which start at zero in each worker process")
    config.addinivalue_line("markers", "killable: a scenario that holds when --kill-seed kills the worker once")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (times := metafunc.config.getoption("--times")) > 1:
        metafunc.fixturenames.append("attempt")
        metafunc.parametrize("attempt", range(times))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by folder, and group those that must run sequentially in one xdist worker."""
    if row := config.getoption("--row"):
        items[:] = [item for item in items if row in rows_of(item)]
    killed = config.getoption("--kill-seed") is not None
    own_paths = sorted({item.path for item in items if needs_own_sandbox(item, killed)})
    for item in items:
        tier = item.path.relative_to(ROOT).parts[0]
        item.add_marker(tier)
        if tier in REAL_COMPONENTS:
            item.add_marker("sandbox")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
        if tier == "scenarios" and "product" in fixtures_of(item) and not item.get_closest_marker("exact_counters"):
            item.add_marker("killable")
        item.user_properties += [("row", row) for row in rows_of(item)]
        if group := group_of(item, killed, own_paths):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=position)


def rows_of(item: pytest.Item) -> list[str]:
    """The scenario rows that a test covers."""
    return [str(row) for mark in item.iter_markers("row") for row in mark.args]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude modules and collected tests from garbage collection, which then takes less time in each test.

    Without the check, a pytest-xdist that does not fit the version of pytest would silently ignore groups.
    """
    gc.freeze()
    gc.enable()
    if hasattr(session.config, "workerinput") and session.config.getoption("loadgroup"):
        grouped = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in nodeid for nodeid in grouped), "pytest-xdist does not group: pin another version of pytest"


def group_of(item: pytest.Item, killed: bool, own_paths: list[Path]) -> str:
    """The xdist group; empty for a test that may run next to any other."""
    fixtures = fixtures_of(item)
    if item.path in own_paths and needs_own_sandbox(item, killed):
        return f"own-sandbox-{own_paths.index(item.path) % OWN_SANDBOXES}"
    if "shared_sandbox" in fixtures and "shared_product" not in fixtures:
        return SHARED_SANDBOX
    return next((fixture for fixture in SERIAL_FIXTURES if fixture in fixtures), "")


def needs_own_sandbox(item: pytest.Item, killed: bool) -> bool:
    fixtures = fixtures_of(item)
    return "sandbox" in fixtures or (killed and "shared_product" in fixtures)


def position(item: pytest.Item) -> int:
    """Groups and slow tests first, since they take longest; tests with the shared worker last."""
    if is_exclusive(item):
        return 1 if item.get_closest_marker("smoke") else 0
    if item.get_closest_marker("xdist_group"):
        return 2
    if "shared_product" in fixtures_of(item):
        return 5 if item.name in LONG_TESTS else 6
    return 3 if item.nodeid.partition("[")[0] in SLOW_TESTS else 4


def fixtures_of(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


def is_exclusive(item: pytest.Item | None) -> bool:
    """The test uses the shared sandbox, and no worker but its own may run there."""
    return item is not None and any(mark.args == (SHARED_SANDBOX,) for mark in item.iter_markers("xdist_group"))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The shared worker starts after the last test that uses the shared sandbox alone. A sandbox of this process stops
    after the last test that uses it, since its components use the CPUs until then.
    """
    if is_exclusive(item) and not is_exclusive(nextitem):
        (run_directory(item.config) / EXCLUSIVE_TESTS_DONE).touch()
    if "sandbox" in fixtures_of(item) and nextitem is not None and "sandbox" not in fixtures_of(nextitem):
        for definition in item.session._fixturemanager.getfixturedefs("sandbox", item) or ():
            definition.finish(item._request)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def exclusive_tests_done(request: pytest.FixtureRequest) -> None:
    """Wait until no test uses the shared sandbox alone any more."""
    done = run_directory(request.config) / EXCLUSIVE_TESTS_DONE
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(map(is_exclusive, request.session.items)) and not done.exists():
        assert time.monotonic() < deadline, "tests with exclusive use of the shared sandbox did not end"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def start_lock(request: pytest.FixtureRequest) -> FileLock:
    """Sandboxes start one after another: several at once take longer, and disturb the tests that already run."""
    return FileLock(run_directory(request.config) / "start.lock")


def run_directory(config: pytest.Config) -> Path:
    """The temporary directory that all processes of the run share."""
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    base = factory.getbasetemp()
    return base.parent if hasattr(config, "workerinput") else base


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the server of the shared sandbox. A component of the sandbox that ended early fails the run."""
    if hasattr(session.config, "workerinput"):
        return
    directory = run_directory(session.config) / "shared"
    pid = directory / "server.pid"
    if pid.exists():
        os.kill(int(pid.read_text()), signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while pid.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    if (failure := directory / "failure").exists():
        print(f"\nthe shared sandbox failed: {failure.read_text()}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
