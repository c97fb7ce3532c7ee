"""House rules that no linter checks."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_DATA_BYTES = 500_000
CATCH_ALL_NAMES = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}
MACHINE_PATH = re.compile(r"/(work|farm)/\w|/tmp/bash[_]jobs|/opt/(wheels|pypi)")
REGISTRY_HOST = re.compile(r"pypi[.]org|pythonhosted[.]|(download|download-r2)[.]pytorch[.]")
SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore)")
EXPLAINED = re.compile(r"#\s*(noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\])\s*#?\s*\S.{5,}")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and number of lines of each function of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTION):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def matches(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    found = []
    for path in files:
        text = path.read_text(errors="ignore")
        found += [f"{path}: {match[0]}" for match in pattern.finditer(text)]
    return found


def test_files_stay_short_enough_to_read(python_files: list[Path]) -> None:
    assert len(python_files) > 20, "the list of files is wrong"
    lengths = {path: len(path.read_text().splitlines()) for path in python_files}
    assert {path: n for path, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_stay_short_enough_to_read(python_files: list[Path]) -> None:
    long = [
        f"{path}: {name} has {lines} lines"
        for path in python_files
        for name, lines in functions(path)
        if lines > MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_no_file_is_named_after_nothing(python_files: list[Path]) -> None:
    assert [path for path in python_files if path.name in CATCH_ALL_NAMES] == []


def test_no_file_names_a_machine_or_a_package_registry(tracked_files: list[Path]) -> None:
    found = matches(MACHINE_PATH, tracked_files) + matches(REGISTRY_HOST, tracked_files)
    assert not found, "\n".join(found)


def test_a_silenced_check_has_a_code_and_a_reason(python_files: list[Path]) -> None:
    bare = [
        f"{path}:{line}: {comment}"
        for path in python_files
        for line, comment in comments(path)
        if SUPPRESSION.match(comment) and not EXPLAINED.match(comment)
    ]
    assert not bare, "\n".join(bare)


def test_the_repository_holds_no_large_file(tracked_files: list[Path]) -> None:
    large = [path for path in tracked_files if path.stat().st_size > MAX_DATA_BYTES]
    assert large == []


def test_the_rules_see_what_they_forbid() -> None:
    slash, dot = "/", "."
    assert MACHINE_PATH.search(f"{slash}work{slash}x")
    assert REGISTRY_HOST.search(f"https:{slash}{slash}pypi{dot}org")
    assert SUPPRESSION.match("# noqa")
    assert not EXPLAINED.match("# noqa: E501")
    assert not EXPLAINED.match("# type: ignore[misc]")
    assert EXPLAINED.match("# type: ignore[misc]  # hydra has no types here")
