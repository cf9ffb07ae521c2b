"""A folder of manifests for each test."""

from pathlib import Path

import pytest
from _pytest.capture import CaptureFixture

from tests.unit.cli.simulate.builders import Files


@pytest.fixture
def files(tmp_path: Path, capsys: CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)
