"""Breaks the package on purpose, one place at a time, and says which places no test notices.

    pip install -e '.[test]' pytest-cov
    python -m tests.mutation record                  # runs the tests once: which test runs which line
    python -m tests.mutation run --count 200         # breaks 200 places, drawn with a fixed seed
    python -m tests.mutation run --only survivors    # tries those that survived once more

Tests run on copies of the tree in a folder (`--folder`). Each place is tested by the tests that run its line, quickest
first, until one fails or there are no more.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
TARGETS = (
    "asyncdata/graph/*.py",
    "asyncdata/runtime/tickets.py",
    "asyncdata/runtime/position_codec.py",
    "asyncdata/runtime/resharding.py",
    "asyncdata/runtime/source_state.py",
    "asyncdata/transforms/*_position.py",
    "asyncdata/transforms/*.py::Tickets",  # the classes whose names contain it
    "asyncdata/sources/*.py::Tickets",
    "asyncdata/transforms/*.py::Position",
)
TESTS = (
    *("graph", "runtime", "transforms", "laws", "persistence", "sources", "cluster", "engines", "executors"),
    *("test_epochs.py", "test_resume.py", "test_checkpoint.py", "test_skip.py", "test_earlier.py", "test_strict.py"),
    *("test_tee.py", "test_cures.py", "test_recipes.py", "test_trailing_zeros.py", "test_ending.py"),
)
FIRST = 6.0
"""Seconds of tests that are tried first, in one process: most places are noticed there."""
HANGS = 30
"""Seconds after which a test counts as failed: a broken loop may never end."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
}


class Mutant(NamedTuple):
    """One place and what stands there instead; `lines` are those of its statement."""

    path: str
    begin: tuple[int, int]
    end: tuple[int, int]
    text: str
    lines: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.path}:{self.begin[0]}:{self.begin[1]} -> {self.text}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in place of a part of a program."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield with_part(node, "ops", [SWAPS[type(op)]()])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in SWAPS:
            yield with_part(node, "op", SWAPS[type(op)]())
        case ast.IfExp(test=test):
            yield with_part(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield ast.Call(ast.Name("bool"), [operand], [])
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.stmt():
            yield from changed_statements(node)


def changed_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield what may stand in place of a statement: nothing, or `None` as the result."""
    match node:
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=value) if not isinstance(value, (ast.Constant, ast.Yield, ast.YieldFrom)):
            yield ast.Pass()
        case ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def with_part(node: ast.AST, name: str, part: Any) -> ast.AST:
    """Return a copy of a node with another part."""
    other = copy.copy(node)
    setattr(other, name, part)
    return other


def mutants(path: Path, classes: str = "") -> Iterator[Mutant]:
    """Yield all mutants of a file, or of its classes whose names contain `classes`."""
    tree = ast.parse(path.read_text())
    name = str(path.relative_to(ROOT))
    for part in tree.body:
        if not classes or (isinstance(part, ast.ClassDef) and classes in part.name):
            yield from mutants_of(part, name, part)


def mutants_of(node: ast.AST, path: str, statement: ast.stmt) -> Iterator[Mutant]:
    """Yield the mutants of a part of a program, but of what people alone read: messages, annotations, `__repr__`."""
    if isinstance(node, ast.stmt):
        statement = node
    for change in changes(node):
        first = statement.lineno
        last = statement.body[0].lineno - 1 if hasattr(statement, "body") else statement.end_lineno
        text = ast.unparse(ast.fix_missing_locations(change))
        text = f"({text})" if isinstance(change, ast.expr) and not isinstance(change, ast.Constant) else text
        begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        yield Mutant(path, begin, end, text, (first, max(first, last)))
    if isinstance(node, (ast.If, ast.While)):
        test, negated = node.test, ast.unparse(ast.UnaryOp(ast.Not(), node.test))
        begin, end = (test.lineno, test.col_offset), (test.end_lineno, test.end_col_offset)
        yield Mutant(path, begin, end, f"({negated})", (node.lineno, test.end_lineno))
    if isinstance(node, (ast.JoinedStr, ast.Raise)) or getattr(node, "name", "") == "__repr__":
        return
    for field, value in ast.iter_fields(node):
        if field not in {"annotation", "returns", "decorator_list"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from mutants_of(child, path, statement)


def all_mutants(targets: Sequence[str]) -> list[Mutant]:
    """Return the mutants of some files, `pattern` or `pattern::part of a class's name`."""
    found: dict[Mutant, None] = {}
    for target in targets:
        pattern, _, classes = target.partition("::")
        for path in sorted(ROOT.glob(pattern)):
            found.update(dict.fromkeys(mutants(path, classes)))
    return [*found]


def broken(source: bytes, mutant: Mutant) -> bytes:
    """Return a file with the mutant in it; lines keep their numbers."""
    lines = source.splitlines(keepends=True)
    (first, start), (last, stop) = mutant.begin, mutant.end
    gone = b"".join(lines[first - 1 : last])
    rest = lines[last - 1][stop:]
    fill = b"\n" * (gone.count(b"\n") - rest.count(b"\n"))
    text = mutant.text.encode()
    middle = text[:-1] + fill + text[-1:] if text.endswith(b")") else text + fill
    return b"".join([*lines[: first - 1], lines[first - 1][:start], middle, rest, *lines[last:]])


class Record:
    """Which tests run which lines, and how long they take."""

    def __init__(self, folder: Path) -> None:
        from coverage import CoverageData

        self.seconds: dict[str, float] = json.loads((folder / "seconds.json").read_text())
        self.data = CoverageData(str(folder / "recorded" / ".coverage"))
        self.data.read()
        self.names = {path.partition("/asyncdata/")[2]: path for path in self.data.measured_files()}
        self.lines: dict[str, dict[int, list[str]]] = {}

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that run a mutant, quickest first; what runs at import is run by all tests of its file."""
        path = self.names[mutant.path.partition("/")[2]]
        if path not in self.lines:
            self.lines[path] = self.data.contexts_by_lineno(path)
        lines, (first, last) = self.lines[path], mutant.lines
        contexts = {context for line in range(first, last + 1) for context in lines.get(line, [])}
        if "" in contexts:
            contexts = {context for found in lines.values() for context in found}
        tests = {context.partition("|")[0] for context in contexts} - {""}
        return sorted((test for test in tests if test in self.seconds), key=lambda test: self.seconds[test])


def record(folder: Path, names: Sequence[str]) -> None:
    """Run the tests once with coverage."""
    root = copied(folder / "recorded")
    (root / "recording.py").write_text(RECORDING)
    (root / ".coveragerc").write_text("[run]\ninclude =\n    asyncdata/*\n")
    tests = [f"tests/{name}" for name in names]
    args = [
        "-n",
        "2",
        "-p",
        "recording",
        "--cov",
        "--cov-config=.coveragerc",
        "--cov-context=test",
        "--cov-report=",
        "-W",
        "ignore::ResourceWarning",
    ]
    subprocess.run(command(*args, *tests), cwd=root, env=environment(root), check=False)
    shutil.move(root / "seconds.json", folder / "seconds.json")


RECORDING = """
import json
SECONDS = {}
def pytest_runtest_logreport(report):
    if report.skipped or report.failed:
        SECONDS[report.nodeid] = float("inf")
    SECONDS[report.nodeid] = SECONDS.get(report.nodeid, 0) + report.duration
def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        known = {name: seconds for name, seconds in SECONDS.items() if seconds < 60}
        open("seconds.json", "w").write(json.dumps(known))
"""


def copied(root: Path) -> Path:
    """Return a new copy of what git knows of the tree."""
    shutil.rmtree(root, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    return root


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}


def command(*args: str) -> list[str]:
    return ["nice", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]


def passes(root: Path, tests: Sequence[str]) -> str:
    """Run tests in a copy of the tree; return the one that failed first, or nothing."""
    (root / "chosen").write_text("\n".join(tests))
    args = command("-x", f"--timeout={HANGS}", "@chosen")
    try:
        env = environment(root)
        ended = subprocess.run(args, cwd=root, env=env, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    if ended.returncode == 0:
        return ""
    return next((line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "the run failed")


def tried(root: Path, mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> str:
    """Return what noticed a mutant in a copy of the tree."""
    path = root / mutant.path
    whole = path.read_bytes()
    quick, sofar = 0, 0.0
    while quick < len(tests) and (sofar := sofar + seconds[tests[quick]]) < FIRST:
        quick += 1
    try:
        path.write_bytes(broken(whole, mutant))
        for part in (tests[:quick], tests[quick:]):
            if part and (failed := passes(root, part)):
                return failed
    finally:
        path.write_bytes(whole)
    return ""


def run(folder: Path, chosen: list[Mutant], jobs: int) -> list[Mutant]:
    """Try mutants, each in a copy of the tree; return those that no test noticed."""
    recorded = Record(folder)
    own = threading.local()
    alive: list[Mutant] = []

    def one(numbered: tuple[int, Mutant]) -> None:
        number, mutant = numbered
        if not hasattr(own, "root"):
            own.root = copied(folder / f"copy{threading.get_ident()}")
        failed = tried(own.root, mutant, tests[mutant], recorded.seconds)
        print(number, failed[:100] if failed else f"SURVIVED {len(tests[mutant])} tests:", mutant, flush=True)
        if not failed:
            alive.append(mutant)

    with closing(recorded.data):
        tests = {mutant: recorded.tests(mutant) for mutant in chosen}
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, enumerate(chosen)))
    return alive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "run"])
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "asyncdata-mutation")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=TESTS, help="what to record, in tests/")
    parser.add_argument("--only", help="try only mutants whose text has this in it, or `survivors`")
    parser.add_argument(
        "--targets", nargs="*", default=TARGETS, help="patterns of files, or pattern::part of a class name"
    )
    args = parser.parse_args()
    if args.what == "record":
        record(args.folder, args.tests)
        return
    chosen = all_mutants(args.targets)
    print(len(chosen), "places")
    random.Random(args.seed).shuffle(chosen)
    kept = args.folder / "survivors"
    if args.only == "survivors":
        named = set(kept.read_text().splitlines())
        chosen = [mutant for mutant in chosen if str(mutant) in named]
    elif args.only:
        chosen = [mutant for mutant in chosen if args.only in str(mutant)]
    chosen = chosen[: args.count]
    alive = run(args.folder, chosen, args.jobs)
    kept.write_text("\n".join(map(str, alive)))
    print(f"{len(alive)} of {len(chosen)} survived")


if __name__ == "__main__":
    main()
