"""The shape of the code is a law like any other: layers, the torch-free half, sizes, docstrings, mirrored tests."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
SRC = REPO / "src" / "lockstep"

# Lowest first. A module imports from its own part (folder; all verbs are one part) or from a lower layer.
LAYERS = [
    {"core"},
    {"script", "trace", "runtime", "scaling"},
    {"launch"},
    {"rules", "recipes", "jobs"},
    {"proof"},
    {"verbs"},  # the modules at the top, but for cli
    {"cli"},  # and __main__
]
# Importing these, and `lockstep --help`, must work where torch is not installed. Those yet to come are listed too.
TORCH_FREE = [
    "core",
    "script",
    "rules",
    "runtime/config",
    "cli.py",
    "check.py",
    "migrate.py",
    "explain.py",
    "verify.py",
    "run.py",
    "doctor.py",
    "jobs",
    "submit.py",
    "cli_ckpt.py",
    "cli_complete.py",
    "cli_help.py",
    "cli_keys.py",
    "cli_options.py",
    "cli_prove.py",
    "cli_submit.py",
    "cli_train.py",
    "completion.py",
    "init.py",
    "schema.py",
]
# Who may look at the environment, and why.
ENVIRONMENT = {
    "runtime/world.py": "reads torchrun's variables: who am I among N",
    "launch/": "sets and reads what launcher and ranks tell each other",
}
# Modules without a test file of their own, and why.
UNMIRRORED = {
    "core/outcome.py": "an enumeration of numbers",
    "core/wish.py": "a declaration",
    "cli_options.py": "declarations, tested with `cli.py`",
    "cli_prove.py": "words of two verbs, tested with `cli.py`",
    "cli_train.py": "words of three verbs, tested with `cli.py`",
    "launch/say.py": "one print",
    "launch/supervision.py": "a declaration, filled in from another",
    "rules/rule.py": "a protocol",
    "runtime/recipe.py": "abstract: every recipe's test is its test",
    "trace/data_events.py": "declarations of events, tested with `trace/events.py`",
    "trace/event.py": "what events have in common, tested with `trace/events.py`",
    "trace/whoami.py": "a declaration",
}
MAX_FILE, LONG_FILE, MAX_FUNCTION = 400, 250, 40
LONG_FUNCTIONS: dict[str, str] = {}  # stays empty

# Written in pieces, so that this file may hold them.
_HOSTS = [("pypi", "org"), ("pythonhosted", "org"), ("download.pytorch", "org"), ("anaconda", "org")]
FORBIDDEN = [re.escape(".".join(host)) for host in _HOSTS]
FORBIDDEN += [
    r"--(extra-)?index" + "-url",
    r"(?<![\w.])/wor" + r"k\b",
    "/tmp" + r"/ls\b",
    "/opt" + "/(pypi|wheels)",
    "/root" + "/",
]

TEMPLATES = SRC / "templates"  # what `lockstep init` writes: the user's own, tested by running it
MODULES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py") if TEMPLATES not in path.parents)
TREES = {name: ast.parse((SRC / name).read_text(encoding="utf-8")) for name in MODULES}
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def part(module: str) -> str:
    """The part of the tree a module (`runtime/loop.py`) belongs to; "" is the package itself."""
    folder, _, rest = module.partition("/")
    if rest:
        return folder
    name = folder.removesuffix(".py")
    return "cli" if name.startswith("cli_") else {"__init__": "", "__main__": "cli", "cli": "cli"}.get(name, "verbs")


def layer(of: str) -> int:
    return -1 if of == "" else next(depth for depth, parts in enumerate(LAYERS) if of in parts)


def imports(module: str) -> Iterator[tuple[int, str]]:
    """Line and part of everything that a module imports from lockstep, lazily or for types only too."""
    package = ["lockstep", *module.split("/")[:-1]]
    for node in ast.walk(TREES[module]):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*parent, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        for name in names:
            top, *rest = name.split(".")
            if top == "lockstep":
                yield node.lineno, target_part(rest)


def target_part(names: list[str]) -> str:
    """The part that `lockstep.NAMES` belongs to; a name that is no module is the package's own (`__version__`)."""
    if not names:
        return ""
    if (SRC / names[0]).is_dir():
        return names[0]
    return part(f"{names[0]}.py") if (SRC / f"{names[0]}.py").exists() else ""


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        name = f"{prefix}{getattr(child, 'name', '')}"
        if isinstance(child, FUNCTIONS):
            yield name, child
        inner = f"{name}." if isinstance(child, (*FUNCTIONS, ast.ClassDef)) else prefix
        yield from functions(child, inner)


def code_lines(module: str, function: Function) -> int:
    """Lines of a function's body that are code: no docstring, blank line or comment."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 0
    lines = (SRC / module).read_text(encoding="utf-8").splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
    return sum(1 for line in lines if line.strip() and not line.strip().startswith("#"))


def test_every_part_has_its_layer() -> None:
    known = {name for parts in LAYERS for name in parts} | {""}
    unknown = {part(module) for module in MODULES} - known
    assert not unknown, f"give these folders a place in LAYERS: {sorted(unknown)}"


def test_imports_point_down() -> None:
    wrong = [
        f"{module}:{line} ({part(module)}) imports from {target}"
        for module in MODULES
        for line, target in imports(module)
        if target != part(module) and layer(target) >= layer(part(module))
    ]
    assert not wrong, "\n".join(wrong)


def test_an_import_that_points_up_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "from ..launch import agent",
        "def late():",
        "    import lockstep.runtime.world",
        "    from lockstep import core, __version__",
    ]
    source = "\n".join(lines)
    monkeypatch.setitem(TREES, "runtime/upward.py", ast.parse(source))
    assert sorted(imports("runtime/upward.py")) == [(1, "launch"), (3, "runtime"), (4, ""), (4, "core")]
    assert (
        layer("core") < layer("runtime") < layer("launch") < layer("recipes") < layer(part("train.py")) < layer("cli")
    )


def run_without_torch(code: str) -> subprocess.CompletedProcess[str]:
    block = "import sys; sys.modules['torch'] = None\n"
    return subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("place", [place for place in TORCH_FREE if (SRC / place).exists()])
def test_the_torch_free_half(place: str) -> None:
    modules = [name for name in MODULES if name == place or name.startswith(f"{place}/")]
    names = [dotted(name) for name in modules]
    done = run_without_torch(f"import importlib\nfor name in {names!r}: importlib.import_module(name)")
    assert done.returncode == 0, done.stderr


def test_help_does_not_import_torch() -> None:
    done = run_without_torch("sys.argv = ['lockstep', '--help']\nfrom lockstep.cli import main\nmain()")
    assert done.returncode == 0, done.stderr
    assert "train" in done.stdout


def dotted(module: str) -> str:
    return "lockstep." + module.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def test_files_are_short() -> None:
    lines = {module: len((SRC / module).read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert not [module for module, count in lines.items() if count > MAX_FILE]
    long = {module: count for module, count in lines.items() if count > LONG_FILE}
    assert len(long) <= len(lines) / 10, f"more than one in ten is over {LONG_FILE} lines: {long}"


def test_functions_are_short() -> None:
    long = {
        f"{module}:{function.lineno} {name}": count
        for module, tree in TREES.items()
        for name, function in functions(tree)
        if (count := code_lines(module, function)) >= MAX_FUNCTION and f"{module} {name}" not in LONG_FUNCTIONS
    }
    assert not long, f"functions of {MAX_FUNCTION} lines and more: {long}"
    assert not LONG_FUNCTIONS


def test_everything_public_has_a_docstring() -> None:
    bare = [name for module, tree in TREES.items() for name in undocumented(module, tree)]
    assert not bare, "\n".join(bare)


def undocumented(name: str, node: ast.Module | ast.ClassDef) -> Iterator[str]:
    if ast.get_docstring(node) is None:
        yield name
    for child in node.body:
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)) and not child.name.startswith("_"):
            if isinstance(child, ast.ClassDef):
                yield from undocumented(f"{name} {child.name}", child)
            elif ast.get_docstring(child) is None and not exempt(child):
                yield f"{name} {child.name}"


def exempt(function: Function) -> bool:
    """A function whose contract is written elsewhere: an overload, a setter, one that overrides."""
    marks = {ast.unparse(one).split(".")[-1] for one in function.decorator_list}
    return bool(marks & {"overload", "setter", "override"})


def test_tests_mirror_the_source() -> None:
    missing = [module for module in MODULES if needs_test(module) and not test_of(module).exists()]
    assert not missing, "\n".join(f"{module}: {test_of(module).relative_to(REPO)} is missing" for module in missing)


def test_the_exceptions_are_needed() -> None:
    stale = [module for module in UNMIRRORED if module not in MODULES or test_of(module).exists()]
    stale += [place for place in ENVIRONMENT if not (SRC / place).exists()]
    assert not stale


def needs_test(module: str) -> bool:
    """Whether a module has code of its own: a function or a class."""
    if Path(module).name in ("__init__.py", "__main__.py") or module in UNMIRRORED:
        return False
    return any(isinstance(node, (*FUNCTIONS, ast.ClassDef)) for node in TREES[module].body)


def test_of(module: str) -> Path:
    path = REPO / "tests" / module
    return path.with_name(f"test_{path.name}")


test_of.__test__ = False  # type: ignore[attr-defined]  # a helper by its name only


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in (REPO / "tests").rglob("test_*.py")}
    bare = [folder.relative_to(REPO).as_posix() for folder in folders if not (folder / "__init__.py").exists()]
    assert not bare, f"add an __init__.py, so that names may recur: {sorted(bare)}"


def test_the_environment_is_read_in_one_place() -> None:
    readers = [module for module, tree in TREES.items() if reads_environment(tree)]
    wrong = [module for module in readers if not module.startswith(tuple(ENVIRONMENT))]
    assert not wrong, f"only {ENVIRONMENT} may use the environment"


def reads_environment(tree: ast.Module) -> bool:
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "os":
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "os" and names & {one.name for one in node.names}:
            return True
    return False


def test_no_machine_is_named() -> None:
    pattern = re.compile("|".join(FORBIDDEN))
    found = [
        f"{path.relative_to(REPO)}:{number}: {match.group()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if (match := pattern.search(line))
    ]
    assert not found, "\n".join(found)


def text_files() -> list[Path]:
    """The files that git tracks or would track; without git, those of the folders that are ours."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        names = [name for name in done.stdout.split("\0") if name]
    else:
        ours = [path for folder in ("src", "tests", "docs", "bench") for path in (REPO / folder).rglob("*.*")]
        names = [str(path.relative_to(REPO)) for path in [*ours, *REPO.glob("*.*")]]
    paths = [REPO / name for name in names if not name.endswith((".png", ".pt", ".npz", ".svg"))]
    return [path for path in paths if path.is_file()]
