"""The pages hang together: links lead somewhere, the map names every page, names of the code exist, and each invariant
is cited."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support import features

ROOT = Path(__file__).parents[2]
FOLDERS = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name != "build"]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]
    if "node_modules" not in page.parts
)
FEATURES = sorted(page for page in features.FOLDER.glob("*.md") if page.name != "README.md")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE_BLOCK = re.compile(r"^```.*?^```$|^    .*?$", re.MULTILINE | re.DOTALL)
_CAMEL = re.compile(r"`(?:\w+\.)*(?P<name>[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)(?:\.\w+)*(?:\(\))?`")
_FILE = re.compile(r"`(?P<path>[\w./]*\w\.py)(?::\w+)?`")
FOREIGN = {"PutMetricData", "RetainExceptOnCreate", "WarmThroughput"}
"""Names of AWS that the pages use and the code doesn't."""
_STOPPED = re.compile(r"(Assign|Checkpoint|Expire|Mover|Sweep)Stopped")  # alarms, named after their functions


def anchors_of(page: str) -> set[str]:
    """The anchors that GitHub gives its headings."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """The links of a page to files or headings that do not exist."""
    targets = []
    for link in _LINK.finditer(_CODE_BLOCK.sub("", page.read_text())):
        file, _, anchor = link["target"].partition("#")
        if "://" in file or file.startswith("mailto:"):
            continue
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text())
        ):
            targets.append(link["target"])
    return targets


@cache
def code() -> str:
    """Every line of Python that is ours."""
    return "\n".join(path.read_text() for path in _sources() if path != Path(__file__))


def _sources() -> list[Path]:
    return [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in sorted(folder.rglob("*.py")))]


@cache
def words_of_the_code() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", code()))


def unknown_names(text: str) -> list[str]:
    """Names in the manner of classes, in backticks, that the code does not have."""
    names = {match["name"] for match in _CAMEL.finditer(text)}
    return sorted(name for name in names - words_of_the_code() - FOREIGN if not _STOPPED.fullmatch(name))


def translated_names(text: str) -> frozenset[str]:
    """Names of another system that a page translates: those in the first column of its tables."""
    return frozenset(re.findall(r"\w+", " ".join(re.findall(r"^\| (.*?[^\\]) \|", text, re.MULTILINE))))


@cache
def files_of_the_code() -> tuple[str, ...]:
    return tuple(f"/{path.relative_to(ROOT).as_posix()}" for path in _sources())


def unknown_files(text: str) -> list[str]:
    """Python files, by the end of their paths, that do not exist."""
    paths = {match["path"] for match in _FILE.finditer(text)}
    return sorted(
        path for path in paths if not any(file.endswith(f"/{path}") for file in files_of_the_code())
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []
    assert not re.search(r"^(<<<<<<<|>>>>>>>) ", page.read_text(), re.MULTILINE), "left by a merge"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_names_that_a_page_uses_exist_in_the_code(page: Path) -> None:
    text = page.read_text()
    foreign = translated_names(text) if page.parent.name == "migrate" else frozenset()
    assert [name for name in unknown_names(text) if name not in foreign] == []
    assert unknown_files(page.read_text()) == []


def lost_files(text: str) -> list[str]:
    """Python files that a reader would have to search for: neither below the root nor below `chalicelib`, nor beside
    the file that the same paragraph or row names before them."""
    paths = []
    for block in re.split(r"\n(?=\n|\d+\. |- |\| )", text):
        folder = ROOT / "chalicelib"
        for match in _FILE.finditer(block):
            path = match["path"]
            folders = (ROOT, ROOT / "chalicelib") if "/" in path else (folder,)
            file = next((parent / path for parent in folders if (parent / path).is_file()), None)
            paths += [] if file else [path]
            folder = file.parent if file else folder
    return paths


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/internals/README.md"])
def test_the_files_that_a_recipe_names_open_without_a_search(page: str) -> None:
    assert lost_files((ROOT / page).read_text()) == []


def test_the_map_names_every_page() -> None:
    map_ = ROOT / "docs" / "README.md"
    names = {
        (map_.parent / link["target"].partition("#")[0]).resolve()
        for link in _LINK.finditer(map_.read_text())
    }
    pages = {page for page in PAGES if ROOT / "docs" in page.parents and "adr" not in page.parts}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - {map_} - names) == []


@pytest.mark.parametrize("page", FEATURES, ids=lambda page: page.stem)
def test_a_feature_page_has_every_row_once(page: Path) -> None:
    last = features.LAST_ROWS[page.stem]
    rows = features.rows_of(page.read_text(), last[0])
    assert sorted(row.number for row in rows) == sorted(features.numbers_up_to(last))
    assert [row.number for row in rows if not row.is_well_formed] == []


@pytest.mark.parametrize("page", FEATURES, ids=lambda page: page.stem)
def test_the_tests_that_a_feature_page_names_exist(page: Path) -> None:
    rows = features.rows_of(page.read_text(), features.LAST_ROWS[page.stem][0])
    citations = {(row.number, *citation) for row in rows for citation in row.citations}
    assert {c for c in citations if c[2] not in features.tests_in(ROOT / c[1])} == set()


def test_the_figures_of_the_feature_pages_are_their_rows() -> None:
    text = (features.FOLDER / "README.md").read_text()
    lines = {}
    for page in FEATURES:
        figures = features.figures(features.rows_of(page.read_text(), features.LAST_ROWS[page.stem][0]))
        lines[page.name] = f"({page.name}) | {figures} |"
    assert {name: line for name, line in lines.items() if line not in text} == {}


def test_each_release_has_its_changes_in_order_and_short() -> None:
    _, *releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    for release in releases:
        headings = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert headings == [name for name in ("Added", "Changed", "Fixed") if name in headings]
        changes = re.findall(r"^- .*(?:\n  .*)*", release, re.MULTILINE)
        assert [change for change in changes if len(change.splitlines()) > 3] == []


def test_a_broken_link_and_an_unknown_name_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page!\n[a](#a-page) [b](#b) [c](page.md#a-page) [d](absent.md)\n```sh\n[e](f)\n```\n"
    )
    assert broken_links(page) == ["#b", "absent.md"]
    assert unknown_names("`NoSuchClass` `Dispatcher` `Hypothesis` `services.NeitherThis.run()`") == [
        "NeitherThis",
        "NoSuchClass",
    ]
    assert unknown_files("`local/store.py` `store.py` `gine.py` `local/no.py`") == [
        "gine.py",
        "local/no.py",
    ]


def test_each_invariant_is_defined_once_and_cited() -> None:
    numbers = re.findall(r"^\| I(\d+) ", (ROOT / "docs/invariants.md").read_text(), re.MULTILINE)
    sources = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    citations = {number for path in sources for number in _cited(path.read_text())}
    assert sorted(map(int, numbers)) == sorted(citations) == list(range(1, 21))


def _cited(source: str) -> set[int]:
    """The numbers in a text: of `I4`, and of all from `I1 to I10`."""
    spans = re.findall(r"\bI(\d+) to I(\d+)\b", source)
    return {int(number) for number in re.findall(r"\bI(\d+)\b", source)} | {
        number for first, last in spans for number in range(int(first), int(last) + 1)
    }
