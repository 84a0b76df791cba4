"""How the package hangs together: who may import whom, and which test mirrors which file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "proxy"
TESTS = ROOT / "tests"

VOCABULARY = {"account", "record"}
MAY_IMPORT: dict[str, set[str]] = {
    "": set(),  # proxy/__init__.py: the version
    "__main__": {"cli"},
    "account": set(),
    "record": {"account"},
    "framing": set(),
    "attribution": {"account"},
    "dialects": {"dialects", "framing"},
    "evidence": {"evidence", "framing", "account"},
    "upstream": {"upstream", "account"},
    "serve": {
        *("serve", "upstream", "dialects", "evidence", "framing", "attribution"),
        *("", *VOCABULARY),
    },
    "analyze": {"analyze", *VOCABULARY},
    "simulate": {"simulate", "account"},
    "demo": {"demo", "analyze", "simulate", *VOCABULARY},
    "cli": {"", "serve", "analyze", "simulate", "demo"},
}
"""By the first part of a module's name below `proxy`; "" is the package itself."""

ONLY_IN: dict[str, set[str]] = {
    "httpx": {"upstream"},
    "aiohappyeyeballs": {"upstream"},
    "uvicorn": {"serve"},
    "starlette": {"serve", "simulate"},
    "structlog": {"serve"},
}

TESTED_ELSEWHERE: dict[str, str] = {
    "__main__.py": "test_cli.py",
    "evidence/_api.py": "contract/test_evidence.py",
}
"""Files without a test of their own, and what tests them instead."""

NO_MIRROR = {"contract", "e2e", "real", "bench", "lab"}
"""Folders of tests about more than one file."""
ABOUT_THE_REPOSITORY = {
    "test_architecture.py",
    "test_deploy.py",
    "test_readme.py",
    "test_repository.py",
}


def modules() -> Iterator[tuple[str, Path, ast.Module]]:
    """Every module of the package: its name below `proxy`, its path, its syntax tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield name.removesuffix("__init__").rstrip("."), path, ast.parse(path.read_text())


def imported(path: Path, node: ast.AST) -> list[str]:
    """The absolute names of the modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = path.relative_to(ROOT).parent.parts
        parts = package[: len(package) - node.level + 1]
        base = ".".join([*parts, base] if base else parts)
    if base == "proxy":  # `from proxy import x`: a name of the package, or a module of it
        return [
            f"proxy.{alias.name}"
            if (PACKAGE / alias.name).with_suffix(".py").exists() or (PACKAGE / alias.name).is_dir()
            else "proxy"
            for alias in node.names
        ]
    return [base]


def side(name: str) -> str:
    """The first part of a module's name below `proxy`."""
    return name.partition(".")[0]


@pytest.mark.parametrize(
    ("name", "path", "tree"), [pytest.param(*one, id=one[0] or "proxy") for one in modules()]
)
def test_imports_point_one_way(name: str, path: Path, tree: ast.Module) -> None:
    """Each side imports what the table allows, and libraries stay where they belong."""
    allowed = MAY_IMPORT[side(name)]
    for node in ast.walk(tree):
        for target in imported(path, node):
            top, _, below = target.partition(".")
            if top == "proxy":
                assert side(below) in allowed, f"proxy.{name} imports {target}"
            elif top in ONLY_IN:
                assert side(name) in ONLY_IN[top], f"proxy.{name} imports {target}"


def test_the_command_line_imports_a_side_only_inside_its_verb() -> None:
    """At its top it imports the standard library and the version."""
    (tree,) = (tree for name, _, tree in modules() if name == "cli")
    for node in tree.body:
        for target in imported(PACKAGE / "cli.py", node):
            assert not target.startswith("proxy.")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("proxy", "asyncio msgspec argparse"),
        ("proxy.cli", "asyncio msgspec httpx uvicorn starlette structlog uvloop proxy.serve"),
        (
            "proxy.analyze.tail",
            "asyncio httpx uvicorn starlette structlog uvloop proxy.serve proxy.dialects",
        ),
        ("proxy.dialects", "asyncio httpx uvicorn starlette proxy.serve proxy.account"),
        ("proxy.evidence", "asyncio httpx uvicorn starlette proxy.serve"),
        ("proxy.attribution", "asyncio msgspec httpx proxy.record"),
        ("proxy.simulate.server", "httpx starlette structlog proxy.serve proxy.upstream"),
    ],
)
def test_importing_a_side_does_not_pull_in_another(module: str, absent: str) -> None:
    """Seen from outside, in a fresh interpreter."""
    code = f"import sys, {module}; print(*sorted(set({absent.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def mirror(path: Path) -> Path:
    """The test of a file: `serve/_x.py` is tested by `serve/test_x.py`."""
    return path.with_name(f"test_{path.name.lstrip('_')}")


def test_every_file_has_its_test() -> None:
    """`tests/` mirrors `proxy/` file for file, with the exceptions listed above."""
    missing = []
    for name, path, _ in modules():
        relative = path.relative_to(PACKAGE)
        if path.name == "__init__.py":
            continue
        elsewhere = TESTED_ELSEWHERE.get(str(relative))
        if elsewhere is not None:
            assert (TESTS / elsewhere).exists(), f"{elsewhere} is to test proxy.{name}"
            assert not (TESTS / mirror(relative)).exists(), f"{relative} needs no exception"
        elif not (TESTS / mirror(relative)).exists():
            missing.append(f"tests/{mirror(relative)} for proxy/{relative}")
    assert not missing, "\n".join(missing)


def test_every_test_has_its_file() -> None:
    """A test without a counterpart is about the repository, or belongs to a folder of its own."""
    files = {mirror(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    for page in PACKAGE.rglob("*.md"):  # documentation beside the code is executed, too
        files.add(page.relative_to(PACKAGE).with_name(f"test_{page.stem.lower()}_md.py"))
    for test in TESTS.rglob("test_*.py"):
        relative = test.relative_to(TESTS)
        if relative.parts[0] in NO_MIRROR or str(relative) in ABOUT_THE_REPOSITORY:
            continue
        assert relative in files, f"tests/{relative} mirrors nothing"


def test_every_exception_is_needed() -> None:
    """The list names files that exist."""
    for name in TESTED_ELSEWHERE:
        assert (PACKAGE / name).exists()
