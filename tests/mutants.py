"""Do the tests notice? Change one thing in the source, run the tests that reach it, and see.

    python tests/mutants.py                     everything under noise, mechanisms and accounting
    python tests/mutants.py accounting/budget.py …    some modules
    python tests/mutants.py --every 20          one mutant in twenty, for an estimate
    python tests/mutants.py --minutes 10 …      as many as fit, in random order; Ctrl-C reports as well
    python tests/mutants.py --list noise/inversion.py   only what would be changed

Every mutant is the module's syntax tree with one change: a comparison, an operator, a constant ±1, a
condition negated, a branch, a statement or a returned value left out. It lives in a forked process
only; nothing is written. First all tests run once, watched by coverage, so that a mutant need only face
the tests that run its line: those of its own test file first, then the quickest; the first that fails
kills it, and so does one that takes far too long.

Texts, annotations and decorators are left alone, and so is whatever is raised: errors are read by people.
A survivor that changes nothing, or nothing that matters, is marked beside the code: a comment above the
statement, `# survives: ` and the reason. It does not count. Any other one is a test that is missing.
"""

import argparse
import ast
import contextlib
import gc
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hubbub"
PACKAGES = ("noise", "mechanisms", "accounting")
MARK = "# survives: "

PASS_MARK = 0.9
MOST_SECONDS = 20
"""Of tests that one mutant faces: by then a test for it is missing, or is not found where one looks."""
MOST_BYTES = 6 << 30
STUCK = 99

# What is changed

ORDERS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor"}


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may be changed into."""
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                for other in ORDERS[type(operator)]:
                    ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                    yield ast.Compare(node.left, ops, node.comparators)
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            yield ast.BinOp(node.left, OPERATORS[type(operator)](), node.right)
        case ast.AugAssign(op=operator):
            yield ast.AugAssign(node.target, OPERATORS[type(operator)](), node.value)
            yield ast.Pass()
        case ast.Subscript(slice=ast.Constant(value=int(place))):
            # Of pairs, such as enclosures, the other end.
            yield ast.Subscript(
                node.value, ast.Constant(1 - place if place in (0, 1) else place - 1), node.ctx
            )
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp():
            yield node.operand
        case ast.If() | ast.While() | ast.IfExp():
            if not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
                negated = ast.UnaryOp(ast.Not(), node.test)
                yield type(node)(negated, node.body, node.orelse)
            if isinstance(node, ast.If) and not node.orelse:
                yield ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Name(id=name) if name in NAMES:
            yield ast.Name(NAMES[name], node.ctx)
        case ast.Attribute(attr=name) if name in NAMES:
            yield ast.Attribute(node.value, NAMES[name], node.ctx)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def sites(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Every node that may be changed, and the function it is in."""
    for name, field in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        if name == "slice" and isinstance(field, ast.Constant):
            continue  # changed with what it is an index of
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                yield child, function
                is_named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
                yield from sites(child, f"{function}.{child.name}".strip(".") if is_named else function)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef() | ast.ClassDef():
            marks = {ast.unparse(mark) for mark in [*node.decorator_list, *getattr(node, "bases", [])]}
            return not marks.isdisjoint({"overload", "abstractmethod", "Protocol"})
        case ast.Assign(targets=[ast.Name(id=name)]):
            # An alias of a type is named like one.
            return name == "__all__" or (name[0].isupper() and not name.isupper())
        case ast.AnnAssign():
            return ast.unparse(node.annotation) == "TypeAlias"
    return False


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    function: str
    change: str
    nth: int
    """Which of several alike in one function."""
    place: int
    variant: int
    lines: range

    def tree(self) -> ast.Module:
        """The module, changed."""
        tree = ast.parse((SOURCE / self.module).read_text())
        node = list(sites(tree))[self.place][0]
        return _replaced(tree, node, list(variants(node))[self.variant])

    def __str__(self) -> str:
        again = f" (nth = {self.nth})" if self.nth else ""
        return f"{self.module}:{self.lines.start} {self.function or 'module'}: {self.change}{again}"


def _replaced(tree: ast.Module, old: ast.AST, new: ast.AST) -> ast.Module:
    ast.copy_location(new, old)
    for parent in ast.walk(tree):
        for name, field in ast.iter_fields(parent):
            if field is old:
                setattr(parent, name, new)
            elif isinstance(field, list) and any(item is old for item in field):
                setattr(parent, name, [new if item is old else item for item in field])
    return ast.fix_missing_locations(tree)


def mutants_of(module: str) -> list[Mutant]:
    """All changes of a module, in the order of its text."""
    tree = ast.parse((SOURCE / module).read_text())
    statements = {
        id(inner): statement
        for statement in ast.walk(tree)
        if isinstance(statement, ast.stmt)
        for inner in _own_nodes(statement)
    }
    results, seen = [], Counter()
    for place, (node, function) in enumerate(sites(tree)):
        for variant, new in enumerate(variants(node)):
            statement = statements[id(node)]
            change = f"{_render(node)} → {_render(new)}"
            if isinstance(node, ast.Constant):  # which by itself tells little
                change += f" in {_render(statement):.90}"
            nth = seen[function, change]
            seen[function, change] += 1
            lines = range(statement.lineno, _last_line(statement) + 1)
            results.append(Mutant(module, function, change, nth, place, variant, lines))
    return sorted(results, key=lambda mutant: (mutant.lines.start, mutant.place))


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and its expressions, without the statements inside it."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        yield node
        stack += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _last_line(statement: ast.stmt) -> int:
    """Of a compound statement only the head."""
    body = getattr(statement, "body", None)
    return max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno


def _render(node: ast.AST) -> str:
    return "nothing" if isinstance(node, ast.Pass) else ast.unparse(node).splitlines()[0]


# How tests are run


class Watch:
    """A pytest plugin for the first run: how long each test takes, and which lines it reaches."""

    def __init__(self) -> None:
        import coverage

        self.coverage = coverage.Coverage(data_file=None, source=[str(SOURCE)])
        self.seconds: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        self.coverage.start()

    def pytest_runtest_setup(self, item: Any) -> None:
        # A table made by an earlier test would hide that this one reaches the code that makes it.
        for cached in [thing for thing in gc.get_objects() if isinstance(thing, _lru_cache_wrapper)]:
            if (cached.__module__ or "").startswith("hubbub"):
                cached.cache_clear()
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_runtest_teardown(self, item: Any) -> None:
        self.coverage.switch_context("")

    def reached(self) -> dict[str, dict[int, list[str]]]:
        self.coverage.stop()
        data = self.coverage.get_data()
        paths = {path: str(Path(path).relative_to(SOURCE)) for path in data.measured_files()}
        return {name: data.contexts_by_lineno(path) for path, name in paths.items()}


class Chosen:
    """A pytest plugin for a mutant: only these tests, in this order, none much longer than it took."""

    def __init__(self, tests: list[str], seconds: dict[str, float]) -> None:
        self.order = {test: place for place, test in enumerate(tests)}
        self.seconds = seconds

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_setup(self, item: Any) -> None:
        # Its own time on a processor: others may keep it waiting.
        signal.setitimer(signal.ITIMER_PROF, 5 + 5 * self.seconds[item.nodeid])


def _pytest(plugin: Any, *arguments: str) -> int:
    import pytest

    quiet = "-q -x -p no:cacheprovider -p no:cov --no-header --tb=short --assert=plain"
    return int(pytest.main([*quiet.split(), *arguments], plugins=[plugin]))


def first_run(paths: list[str]) -> tuple[dict[str, float], dict[str, dict[int, list[str]]]]:
    """Every test once, in a process of its own: they must pass, and say what they reach."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        watch = Watch()
        if _pytest(watch, *paths) == 0:
            with os.fdopen(write, "w") as pipe:
                json.dump([watch.seconds, watch.reached()], pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        sys.exit("the tests fail without any change: fix that first")
    seconds, reached = json.loads(answer)
    return seconds, {path: {int(n): tests for n, tests in lines.items()} for path, lines in reached.items()}


def chosen(mutant: Mutant, seconds: dict[str, float], reached: dict[str, dict[int, list[str]]]) -> list[str]:
    """The tests that reach the mutant's lines, its own first, then the quickest, for `MOST_SECONDS`."""
    lines = reached.get(mutant.module, {})
    tests = {test for line in mutant.lines for test in lines.get(line, [])}
    if "" in tests:  # run on import, or while tests are collected: whatever uses the module may notice
        tests = {test for reaching in lines.values() for test in reaching}
    folder, _, name = mutant.module.rpartition("/")
    own = (f"tests/{folder}/test_{name}", f"src/hubbub/{mutant.module}")
    ordered = sorted(tests & seconds.keys(), key=lambda test: (not test.startswith(own), seconds[test]))
    sample, total = [], 0.0
    for test in ordered:
        total += seconds[test]
        if sample and total > MOST_SECONDS:
            break
        sample.append(test)
    return sample


def start(mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> int:
    """A child that has the mutant for its module and runs the tests; its exit code tells how it went."""
    path = str(SOURCE / mutant.module)
    changed = compile(mutant.tree(), path, "exec")
    child = os.fork()
    if child:
        return child
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for alarm in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(alarm, lambda *_: os._exit(STUCK))
    signal.setitimer(signal.ITIMER_PROF, 30)  # for the imports
    signal.setitimer(signal.ITIMER_REAL, 60 * MOST_SECONDS)  # whatever it waits for
    get_code = importlib.machinery.SourceFileLoader.get_code

    def mutated(loader: Any, name: str) -> Any:
        return changed if loader.path == path else get_code(loader, name)

    importlib.machinery.SourceFileLoader.get_code = mutated
    # First by its own name: collected as a file with doctests it would be imported once more, beside itself.
    try:
        importlib.import_module("hubbub." + mutant.module.removesuffix(".py").replace("/", "."))
    except BaseException:  # whatever is raised, it is noticed
        os._exit(1)
    files = sorted({test.partition("::")[0] for test in tests})
    os._exit(_pytest(Chosen(tests, seconds), *files))


def judge(
    mutants: list[Mutant], seconds: dict[str, float], reached: dict[str, dict[int, list[str]]], jobs: int
) -> dict[Mutant, str]:
    """What became of each: killed, stuck (which is as good) or survived."""
    verdicts: dict[Mutant, str] = {}
    running: dict[int, Mutant] = {}
    waiting = list(reversed(mutants))
    start_time = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                tests = chosen(mutant, seconds, reached)
                if tests:
                    running[start(mutant, tests, seconds)] = mutant
                else:
                    verdicts[mutant] = "survived"
            if running:
                child, status = os.wait()
                code = os.waitstatus_to_exitcode(status)
                verdicts[running.pop(child)] = {0: "survived", STUCK: "stuck"}.get(code, "killed")
            _progress(len(verdicts), len(mutants), start_time)
    except KeyboardInterrupt:
        for child in running:
            os.kill(child, signal.SIGKILL)
        print(f"stopped after {len(verdicts)} of {len(mutants)} mutants", file=sys.stderr)
    return verdicts


def stop(*_: Any) -> None:
    """Stop judging, and report what is done."""
    raise KeyboardInterrupt


def _progress(done: int, of: int, start_time: float) -> None:
    if sys.stderr.isatty() or done % 50 == 0 or done == of:
        spent = time.monotonic() - start_time
        end = "\r" if sys.stderr.isatty() and done < of else "\n"
        print(f"{done} of {of} mutants, {spent:.0f} s", end=end, file=sys.stderr)


# What is said


def marks(module: str) -> set[int]:
    """First lines of the statements that are marked: a comment right above says why mutants survive."""
    lines = (SOURCE / module).read_text().splitlines()
    marked, is_marked = set(), False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("#"):
            is_marked = is_marked or text.startswith(MARK)
        elif is_marked and not text.startswith("@"):
            marked.add(number)
            is_marked = False
    return marked


def report(verdicts: dict[Mutant, str], *, is_whole: bool) -> bool:
    """Print the score of each module and every survivor that is not marked; return if all scores suffice."""
    by_module: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in verdicts:
        by_module[mutant.module].append(mutant)
    enough, unmarked, needless = True, [], []
    for module, mutants in sorted(by_module.items()):
        marked = marks(module)
        survived = [mutant for mutant in mutants if verdicts[mutant] == "survived"]
        excused = [mutant for mutant in survived if mutant.lines.start in marked]
        unmarked += [mutant for mutant in survived if mutant.lines.start not in marked]
        needless += [f"{module}:{line}" for line in marked - {mutant.lines.start for mutant in excused}]
        missed = len(survived) - len(excused)
        total_count = len(mutants) - len(excused)
        score = 1 - missed / total_count if total_count else 1.0
        enough = enough and score >= PASS_MARK
        stuck = sum(verdicts[mutant] == "stuck" for mutant in mutants)
        print(
            f"{module:28} {score:7.1%}  {len(mutants)} mutants, {missed} survived, "
            f"{len(excused)} marked, {stuck} stuck"
        )
    for mutant in unmarked:
        print(f"survived  {mutant}")
    for place in sorted(needless) if is_whole else []:
        print(f"no mutant survives here any more, take the mark off: {place}")
    return enough


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="such as accounting/budget.py; all, if none is given")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth mutant, for an estimate")
    parser.add_argument("--minutes", type=float, help="stop then, and report; in random order")
    parser.add_argument("--tests", nargs="*", default=[], help="only these paths; all, if none is given")
    parser.add_argument("--list", action="store_true", help="print the changes and stop")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    paths = [path for name in PACKAGES for path in sorted((SOURCE / name).glob("*.py"))]
    modules = arguments.modules or [str(path.relative_to(SOURCE)) for path in paths]
    mutants = [mutant for module in modules for mutant in mutants_of(module)][:: arguments.every]
    if arguments.minutes:
        random.Random(0).shuffle(mutants)
    if arguments.list:
        print(*mutants, sep="\n")
        return
    # Imported once, for all the children; hubbub itself must be imported by each of them.
    for library in ("coverage", "hypothesis", "mpmath", "numpy", "pytest"):
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    assert "hubbub" not in sys.modules
    seconds, reached = first_run(arguments.tests)
    print(f"{len(mutants)} mutants, {len(seconds)} tests of {sum(seconds.values()):.0f} s", file=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, 60 * (arguments.minutes or 0))
    verdicts = judge(mutants, seconds, reached, arguments.jobs)
    if not report(
        verdicts, is_whole=len(verdicts) == len(mutants) and arguments.every == 1 and not arguments.tests
    ):
        sys.exit(f"below {PASS_MARK:.0%}: write the tests that are missing")


if __name__ == "__main__":
    main()
