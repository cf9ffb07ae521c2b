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


def test_long_sentence_of_a_page_a_table_or_a_docstring_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_names, "ROOT", tmp_path)
    short, long = " ".join(["Word", *["word"] * 34]) + ".", " ".join(["Word", *["word"] * 35]) + "."
    (tmp_path / "good.md").write_text(
        f"{short} {short}\n\n- {short}\n- {short}\n\n| {short} | {short} |\n\n    {long}\n"
    )
    (tmp_path / "good.py").write_text(f'"""Title.\n\n{short}\n"""\nTEXT = "{long}"\n')
    found = [one for one in check_names.problems_of_sentences() if "average" not in one]
    assert found == []
    for name, text in (("text.md", long), ("table.md", f"| {long} |"), ("module.py", f'"""{long}"""')):
        (tmp_path / name).write_text(text)
    average, *found = sorted(one.partition(":")[0] for one in check_names.problems_of_sentences())
    assert found == ["module.py", "table.md", "text.md"] and average.endswith("in an average sentence, at most 18")
