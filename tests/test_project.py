"""The shape of the repository: a fixed top level, folders that explain themselves, no lean on one machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gpusim", "dsl", "kernels_sim", "kernels_real", "visualize")
README_FOLDERS = (*PACKAGES, "bench")
TOP_LEVEL = {*PACKAGES, "cli.py", "tests", "bench", "docs", "examples"}
PROJECT_FILES = {
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md", "LICENSE", "Makefile", "pyproject.toml",
    ".gitignore", ".ci", ".github",
}  # fmt: skip
MADE_BY_TOOLS = re.compile(r"__pycache__|\..*_cache|\.(venv|git|hypothesis|DS_Store)|build|dist|.*\.egg-info")

# Spelled in pieces, so that this file does not hold them.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(wor" + r"k|root|home/[a-z]+|Users/[a-z]+)/"),
    "a package registry's host": re.compile("pypi" + r"\.org|pythonh" + "osted"),
    "a tracker's number": re.compile(r"\bissue" + r" (#\d+|2)\b", re.IGNORECASE),
}


def tracked() -> list[Path]:
    """List the project's files relative to its root: git's, or without git all that no tool made."""
    git = ["git", "ls-files", "-z"]
    try:
        out = subprocess.run(git, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return list(walk(ROOT))
    return [p for name in out.split("\0") if name and (ROOT / (p := Path(name))).is_file()]


def walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that no tool made."""
    for entry in sorted(folder.iterdir()):
        if MADE_BY_TOOLS.fullmatch(entry.name):
            continue
        if entry.is_dir():
            yield from walk(entry)
        else:
            yield entry.relative_to(ROOT)


def leanings(text: str) -> list[str]:
    """List what a text mentions that belongs to one machine or one moment."""
    return [f"{why}: {m.group()}" for why, pattern in FORBIDDEN.items() for m in pattern.finditer(text)]


def test_the_top_level_is_the_fixed_set() -> None:
    assert {p.parts[0] for p in tracked()} - TOP_LEVEL - PROJECT_FILES == set()


def test_every_part_of_the_fixed_set_is_there() -> None:
    assert sorted(name for name in TOP_LEVEL | PROJECT_FILES if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("folder", README_FOLDERS)
def test_every_folder_says_what_it_is_and_what_it_does_not_model(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    assert text.startswith("# ")
    assert "not" in text.lower()


@pytest.mark.parametrize("folder", README_FOLDERS)
def test_a_folder_readme_names_every_module_of_its_folder(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    modules = [p.name for p in sorted((ROOT / folder).glob("*.py")) if not p.name.startswith("__")]
    assert [m for m in modules if m not in text] == []


def test_the_readme_of_dsl_names_the_modules_of_each_package_in_its_row_and_no_others() -> None:
    text = (ROOT / "dsl/README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)/` \|[^|]*\| (.*) \|$", text, re.MULTILINE))
    named = {package: sorted(re.findall(r"`(\w+)`", row)) for package, row in rows.items()}
    there: dict[str, list[str]] = {}
    for path in sorted((ROOT / "dsl").glob("*/*.py")):
        there.setdefault(path.parent.name, []).extend([path.stem] if path.stem != "__init__" else [])
    assert named == there


@pytest.mark.parametrize("folder", README_FOLDERS)
def test_a_folder_readme_names_no_module_that_is_not_there(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    named = set(re.findall(r"`(\w+\.py)`", text))
    assert sorted(m for m in named if not (ROOT / folder / m).exists() and not (ROOT / m).exists()) == []


def test_an_installation_has_every_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^packages = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    inits = [p for p in tracked() if p.parts[0] in PACKAGES and p.name == "__init__.py"]
    there = {".".join(p.parent.parts) for p in inits}
    assert set(re.findall(r'"([\w.]+)"', listed[1])) == there


def test_no_file_leans_on_one_machine() -> None:
    suffixes = {".py", ".md", ".toml", ".yml", ".csv", ".txt", ".json", ".cu", ""}
    texts = [(p, (ROOT / p).read_text(errors="replace")) for p in tracked() if p.suffix in suffixes]
    assert len(texts) > 20
    assert [f"{p}: {what}" for p, text in texts for what in leanings(text)] == []


@pytest.mark.parametrize(
    "text",
    ["/wor" + "k/x", "/home/" + "ann/x", "https://pyp" + "i.org/x", "fixes iss" + "ue 2", "Iss" + "ue #17"],
)
def test_a_text_that_leans_on_one_machine_is_found(text: str) -> None:
    assert len(leanings(text)) == 1


@pytest.mark.parametrize(
    "text", ["the work/data folder", "a work-around", "SMs issue 4 warps", "pip install -e .", "x/workflow/x"]
)
def test_plain_words_are_not_taken_for_it(text: str) -> None:
    assert leanings(text) == []


def test_the_documents_link_to_files_that_exist() -> None:
    broken = []
    for doc in (p for p in tracked() if p.suffix == ".md"):
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", (ROOT / doc).read_text(), flags=re.MULTILINE | re.DOTALL)
        targets = re.findall(r"\]\(([^)#:\s]+)[^):]*\)", prose)
        broken += [f"{doc}: {t}" for t in targets if not (ROOT / doc.parent / t).exists()]
    assert broken == []
