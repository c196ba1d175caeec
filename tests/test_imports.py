"""The rooms import what docs/architecture.md says, neither more nor less; torch, nats and subjects stay in theirs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import EVENTS

ROOT = Path(__file__).parents[1]
ROOMS = ("schemas", "bus", "relay", "policy", "environments", "workers", "validator", "trainer", "cli")
TORCHLESS = ("schemas", "bus", "relay")
FOLDERS = (*ROOMS, "benchmarks", "examples")

FIRST_TOKENS = {event.subject.partition(".")[0] for event in EVENTS.values() if "." in event.subject} - {
    "{writes}"
}
SUBJECT = re.compile(rf"(^|\.)({'|'.join(sorted(FIRST_TOKENS))})\.($|[\w*>])")
"""A literal, or the literal part of an f-string, that spells a subject: `rollouts.`, `.tasks.*`."""


def sources(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text(), filename=str(path))


def imported(tree: ast.Module) -> Iterator[str]:
    """Top-level names of everything that is imported, inside functions and type checking blocks too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            yield (node.module or "").partition(".")[0]


def graph(room: str) -> set[str]:
    """The rooms that this room's code imports."""
    return {name for _, tree in sources(room) for name in imported(tree)} & set(ROOMS) - {room}


def table() -> dict[str, set[str]]:
    """Room -> the rooms that it imports, from the table of docs/architecture.md."""
    rows = re.findall(
        r"^\| `(\w+)/` \|.*\| ([^|]*) \|$",
        (ROOT / "docs" / "architecture.md").read_text(),
        flags=re.MULTILINE,
    )
    return {room: set(re.findall(r"\w+", imports)) - {"none"} for room, imports in rows}


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """String literals that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def test_the_page_has_every_room() -> None:
    assert set(table()) == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_the_code_imports_what_the_page_says(room: str) -> None:
    written = table()[room]
    if written == {"all"}:
        written = graph(room)
    assert graph(room) == written, f"correct {room}/ or the table in docs/architecture.md"


@pytest.mark.parametrize("room", ["workers", "validator", "trainer"])
def test_workers_validator_and_trainer_meet_only_on_the_bus(room: str) -> None:
    assert not graph(room) & {"workers", "validator", "trainer", "cli"}


def test_the_rooms_have_no_cycle() -> None:
    placed: set[str] = set()
    for room in ROOMS:
        assert graph(room) <= placed, f"{room}/ imports upwards"
        placed.add(room)


@pytest.mark.parametrize("room", TORCHLESS)
def test_torch_is_not_loaded(room: str) -> None:
    program = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module({room!r})\n"
        "for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "bus"])
def test_nats_is_imported_only_in_bus(folder: str) -> None:
    assert [str(path) for path, tree in sources(folder) if "nats" in set(imported(tree))] == []


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "schemas"])
def test_subjects_are_spelled_only_in_schemas(folder: str) -> None:
    spelled = [
        f"{path}:{literal.lineno} {literal.value!r}"
        for path, tree in sources(folder)
        for literal in strings(tree)
        if SUBJECT.search(str(literal.value))
    ]
    assert spelled == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = 'rollouts.*.*.*.*'", True),
        ("x = f'{run}.rollouts.{worker}'", True),
        ("x = 'tasks.' + worker", True),
        ("x = run + '.nodes.>'", True),
        ("def f():\n    'rollouts.x is a docstring'", False),
        ("x = 'the rollouts. Then more'", False),
        ("x = 'ROLLOUTS'", False),
        ("x = {'run.seed': '1'}", False),
    ],
)
def test_what_spells_a_subject(code: str, found: bool) -> None:
    assert any(SUBJECT.search(str(literal.value)) for literal in strings(ast.parse(code))) == found
