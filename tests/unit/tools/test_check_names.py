"""Phrases to avoid are found in strings and pages, not in code; folders of modules and of pages have a maximum size."""

from pathlib import Path

import pytest

from tools import check_names


def test_phrases_are_found_with_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_names, "ROOT", tmp_path)
    (tmp_path / "module.py").write_text('beside = 1\n\nTEXT = """Plain.\n\nIt is made anew."""\n')
    (tmp_path / "page.md").write_text("# Title\nNobody owns it.\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "page.md").write_text("nobody\n")
    assert [one.partition(":")[0] for one in check_names.find_phrases()] == ["page.md", "module.py"]
    page, module = check_names.find_phrases()
    assert page.startswith("page.md:2 'Nobody'") and module.startswith("module.py:5 'anew'")


def test_folder_of_26_pages_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_names, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    for number in range(check_names.MOST_ENTRIES):
        (tmp_path / "docs" / f"{number}.md").touch()
    assert [*check_names.large_folders()] == []
    (tmp_path / "docs" / "last.md").touch()
    assert [one.partition(":")[0] for one in check_names.large_folders()] == ["docs"]
