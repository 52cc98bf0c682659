"""The house rules that a machine can check: which way imports go, how big things are, and what is documented."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING

import asyncdata
import asyncdata.testing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(__file__).parents[1] / "asyncdata"

# A module may import from the layers above its own, and from its own package within its own layer.
LAYERS = (
    ("lazy_names", "redaction"),
    ("errors",),
    ("system",),
    ("memory",),
    ("elements",),
    ("cluster_settings", "formats"),
    ("options",),
    ("runtime",),
    ("executors", "statistics", "storage"),
    ("executors.process",),
    ("graph",),
    ("sources",),
    ("steps",),
    ("transforms",),
    ("engines", "identity"),
    ("cluster", "devices"),
    ("planning",),
    ("observe", "process_engine", "states"),
    ("checkpoint", "epochs", "persistence"),
    ("iterator", "transformation_arguments"),
    ("grouping", "integrations", "tee", "web"),
    ("demo", "recorder", "torch", "transformations"),
    ("dataset_arguments", "source_arguments"),
    ("dataset",),
    ("readers", "testing"),
    ("cli", "experimental"),
    ("__main__",),
)
USERS = ("testing", "demo", "__main__")  # these alone may `import asyncdata` as a user does

# What may be imported from above for its types alone, and why.
TYPES_FROM_ABOVE = {
    ("asyncdata.grouping", "asyncdata.dataset"): "each transformation gives a dataset, which has them all",
    ("asyncdata.transformations", "asyncdata.dataset"): "likewise",
    ("asyncdata.integrations.loader", "asyncdata.dataset"): "a loader is made of a dataset, by a method of it",
    ("asyncdata.integrations.keras", "asyncdata.dataset"): "likewise",
    ("asyncdata.integrations.torch_dataset", "asyncdata.dataset"): "likewise",
}

# Modules whose functions import modules of this package, so that a program loads what it uses, and why.
LATE = {
    "asyncdata.states": "the checks of a resume",
    "asyncdata.cli.compare": "PyTorch, which no other command needs",
    "asyncdata.dataset": "each method imports what it alone needs",
    "asyncdata.dataset_arguments": "likewise",
    "asyncdata.engines.stall_report": "statistics, which most programs do not ask for",
    "asyncdata.graph.autotuned_workers": "worker processes",
    "asyncdata.graph.stage_workers": "worker processes, and AUTOTUNE's workers",
    "asyncdata.grouping": "each method imports what it alone needs",
    "asyncdata.planning.optimizer": "clusters, and steps that a rule makes",
    "asyncdata.iterator": "devices, a process of its own, statistics and the dashboard",
    "asyncdata.sources.file_list_digest": "files, whose names a state holds",
    "asyncdata.runtime.tickets": "many tickets in a state, which are packed",
    "asyncdata.transformation_arguments": "likewise",
    "asyncdata.transformations": "each method imports what it alone needs",
    "asyncdata.transforms.function_node": "worker processes",
    "asyncdata.transforms.map": "worker processes",
    "asyncdata.transforms.repeat": "rules know this step, and few programs repeat",
}

# What may be imported inside any function, and why.
OPTIONAL = {
    "asyncdata.storage.without_length": "needed for few web servers, and Python's HTTP client is slow to import",
    "google_crc32c": "some releases give a free-threaded interpreter its lock back",
    "google.protobuf": "needed by tf.Example alone, and slow to import",
    "uvloop": "not there on every platform",
}

BORROWED_PRIVATE_NAMES = {
    "_asdict",
    "_current_frames",
    "_exit",
    "_fields",
    "_make",
    "_replace",
}  # public in all but name


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    path: Path
    name: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The dotted name of the package that it lives in, itself if it is a package."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a tree, which each of the rules looks at."""
    return [*ast.walk(tree)]


@cache
def modules() -> tuple[Module, ...]:
    found: list[Module] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(path, name, ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(found)


@cache
def module_names() -> set[str]:
    return {module.name for module in modules()}


def each_module(check: Callable[[Module], None]) -> Callable[[], None]:
    """Make one test that finds all modules that fail a check: one for each module took four times as long."""

    def test() -> None:
        found: list[str] = []
        for module in modules():
            try:
                check(module)
            except AssertionError as error:
                found.append(f"{module.name}: {error}")
        assert not found, "\n".join(found)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


# ---------------------------------------------------------------------------------------------------------------------
# Imports


@cache
def layer(name: str) -> int | None:
    """The number of the layer of module `name`, None for a package that only holds others together."""
    inner = name.removeprefix("asyncdata").lstrip(".")
    numbers = {member: number for number, members in enumerate(LAYERS) for member in members}
    while inner and inner not in numbers:
        inner = inner.rpartition(".")[0]
    return numbers.get(inner)


@cache
def imported_modules(module: Module) -> list[str]:
    """Return every module of the package that `module` imports, whether for its types or to run."""
    return [*modules_imported(module)]


def modules_imported(module: Module) -> Iterator[str]:
    known = module_names()
    for node in nodes(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}:{node.lineno}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                name = full if full in known else node.module
                if name in known and (module.name, name) not in TYPES_FROM_ABOVE:
                    yield name


@each_module
def test_every_module_has_a_layer(module: Module) -> None:
    is_shell = module.path.name == "__init__.py" and not list(imported_modules(module))
    assert module.name == "asyncdata" or is_shell or layer(module.name) is not None, "give it a place in LAYERS"


@each_module
def test_imports_go_one_way(module: Module) -> None:
    own = layer(module.name)
    if module.name == "asyncdata" or own is None:
        return
    for name in imported_modules(module):
        if name == "asyncdata":
            assert module.name.split(".")[1] in USERS, f"{module.name} imports the whole package"
            continue
        other = layer(name)
        assert other is not None, f"{module.name} imports {name}, which has no layer"
        same_package = name.rpartition(".")[0] == module.package or name == module.package
        assert other < own or (other == own and same_package), f"{module.name} must not import {name}"


def test_no_imports_in_a_circle() -> None:
    graph = {module.name: set(imported_modules(module)) - {"asyncdata", module.name} for module in modules()}
    graph.pop("asyncdata")
    while free := [name for name, needs in graph.items() if not needs & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph, f"these import one another: {sorted(graph)}"


@each_module
def test_imports_stand_at_the_top(module: Module) -> None:
    for function in functions(module.tree):
        for node in nodes(function):
            for name in imported_names(node):
                optional = any(name == known or name.startswith(f"{known}.") for known in OPTIONAL)
                late = module.name in LATE and name.startswith("asyncdata.")
                assert optional or late, f"{module.path}:{node.lineno}: {name} imported inside {function.name}"


def imported_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(name)):
            return [name]
    return []


@each_module
def test_no_private_name_crosses_a_module(module: Module) -> None:
    own = private_names_defined(module.tree) | BORROWED_PRIVATE_NAMES
    for node in nodes(module.tree):
        match node:
            case ast.Attribute(attr=name):
                assert not is_private(name) or name in own, f"{module.path}:{node.lineno}: {name} is another's"
            case ast.ImportFrom(names=names):
                private = [alias.name for alias in names if is_private(alias.name)]
                assert not private, f"{module.path}:{node.lineno}: {private} is another's"


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def private_names_defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in nodes(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self" | "cls")):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names.add(name)
    return names


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def docstring(node: ast.AST) -> ast.stmt | None:
    """The statement that is the docstring of `node`."""
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return node.body[0] if documented and ast.get_docstring(node) is not None else None


def body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """The statements of `function` without its docstring, and without imports at its beginning."""
    statements = function.body[1:] if docstring(function) else function.body
    return [*dropwhile(lambda node: isinstance(node, ast.ImportFrom), statements)]


def lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def function_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    statements = body(function)
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@each_module
def test_files_are_short(module: Module) -> None:
    documentation = sum(lines(node) for node in nodes(module.tree) if isinstance(node, ast.stmt) and is_string(node))
    size = len(module.path.read_text(encoding="utf-8").splitlines()) - documentation
    assert size <= 800, f"{module.path}: {size} lines without docstrings, at most 800"


@each_module
def test_no_function_is_long(module: Module) -> None:
    for function in functions(module.tree):
        size = function_lines(function)
        assert size <= 50, f"{module.path}:{function.lineno}: {function.name} has {size} lines, at most 50"


def test_most_functions_are_small() -> None:
    sizes = sorted(function_lines(function) for module in modules() for function in functions(module.tree))
    assert sizes[int(len(sizes) * 0.9)] <= 20


def test_dataset_methods_only_build_nodes() -> None:
    (tree,) = (module.tree for module in modules() if module.name == "asyncdata.dataset")
    (dataset,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Dataset")
    for method in functions(dataset):
        assert len(body(method)) <= 3, f"Dataset.{method.name} has {len(body(method))} statements, at most 3"


# ---------------------------------------------------------------------------------------------------------------------
# Names and documentation


OWNER = re.compile(r"\b(threads?|loop|process|processes|task|lock)\b", re.IGNORECASE)
"""What names the owner of state."""


@each_module
def test_what_has_state_says_which_thread_may_use_it(module: Module) -> None:
    """In the docstring of the class or of its module, or for all that a folder has in the folder's."""
    folder = [one.tree for one in modules() if one.name == module.package != "asyncdata"]
    said = [ast.get_docstring(tree) or "" for tree in (module.tree, *folder)]
    for node in nodes(module.tree):
        if isinstance(node, ast.ClassDef) and changes_itself(node):
            texts = [*said, ast.get_docstring(node) or ""]
            assert any(map(OWNER.search, texts)), f"{module.path}:{node.lineno}: which thread may use {node.name}?"


def changes_itself(node: ast.ClassDef) -> bool:
    """Whether a method, other than those that make an object, sets an attribute."""
    methods = [method for method in functions(node) if method.name not in ("__init__", "__post_init__", "__new__")]
    return any(
        isinstance(place, ast.Attribute) and isinstance(place.ctx, ast.Store) and is_self(place.value)
        for method in methods
        for place in nodes(method)
    )


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@each_module
def test_what_is_read_asynchronously_is_closed_here_or_by_the_caller(module: Module) -> None:
    """An async generator that is only dropped is closed when its loop next has time, if it has."""
    for function in functions(module.tree):
        if isinstance(function, ast.AsyncFunctionDef):
            assert [*read_and_dropped(function)] == [], f"{module.path.name}: put these into `async with aclosing(...)`"


def read_and_dropped(function: ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield what a function reads by `async for` and has not closed, unless it is an argument."""
    arguments = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
    closed = {
        name.id
        for node in nodes(function)
        if (isinstance(node, ast.withitem) and called(node.context_expr) == "aclosing") or called(node) == "aclose"
        for name in ast.walk(node)
        if isinstance(name, ast.Name)
    }
    for node in nodes(function):
        if isinstance(node, ast.AsyncFor) or (isinstance(node, ast.comprehension) and node.is_async):
            read = ast.unparse(node.iter)
            if read not in arguments | closed:
                yield read


def called(node: ast.AST) -> str:
    """Return the last part of the name of what is called; nothing if nothing is."""
    return ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""


@each_module
def test_all_is_a_tuple_of_what_is_there(module: Module) -> None:
    values = [
        node.value
        for node in module.tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
    ]
    assert len(values) == 1, f"{module.path}: one __all__ is needed"
    assert isinstance(values[0], ast.Tuple), f"{module.path}: __all__ must be a tuple"
    names = ast.literal_eval(values[0])
    assert len(set(names)) == len(names)
    assert not [name for name in names if is_private(name)]


@each_module
def test_every_module_says_what_lives_in_it(module: Module) -> None:
    assert ast.get_docstring(module.tree), f"{module.path}: a docstring of one sentence is needed"


@each_module
def test_no_module_is_named_after_nothing(module: Module) -> None:
    words = set(module.name.replace(".", "_").split("_"))
    assert not words & {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


METAPHORS = {"bell", "board", "course", "draft", "here", "home", "lay", "post", "rope", "there"}
HIDDEN_VERBS = {"coming", "fed", "found", "imported", "made", "opened", "passed", "place", "through"}


@each_module
def test_functions_and_classes_are_named_by_standard_terms(module: Module) -> None:
    classes = [node for node in nodes(module.tree) if isinstance(node, ast.ClassDef)]
    definitions = [node for scope in (module.tree, *classes) for node in scope.body]
    named = {
        node.name for node in definitions if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {name for name in named if name.lower() in METAPHORS | HIDDEN_VERBS}


def public_objects() -> Iterator[tuple[str, object]]:
    for module in (asyncdata, asyncdata.experimental, asyncdata.testing):
        yield module.__name__, module
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                yield from public_members(f"{module.__name__}.{name}", value)


def public_members(prefix: str, cls: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that asyncdata itself gives to `cls`."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] != "asyncdata":
            continue
        for name, member in vars(base).items():
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not name.startswith("_") and (inspect.isroutine(function) or isinstance(function, property)):
                yield f"{prefix}.{name}", function


def test_everything_public_is_documented() -> None:
    missing = sorted({name for name, value in public_objects() if not value.__doc__})
    assert not missing
