import pickle
from pathlib import Path

from tenure.sandbox.processes import PartFailed


def test_failed_part_is_reported_by_another_process(tmp_path: Path) -> None:
    """xdist and process pools pickle errors. The log may be gone when the report is printed."""
    log = tmp_path / "etcd.log"
    log.write_text("no space left on device\n")
    pickled = pickle.dumps(PartFailed("etcd", "ended with exit code 1", log))
    log.unlink()
    failed = pickle.loads(pickled)
    assert str(failed) == f"etcd: ended with exit code 1\nlog: {log}\n  | no space left on device"
    assert (failed.part, failed.why, failed.log) == ("etcd", "ended with exit code 1", log)
