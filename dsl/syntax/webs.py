"""Split each variable of a function into webs: the sets of assignments that can meet at one use.

numba gives every web its own type (its SSA form with phis), so `x = a[i]; ...; x = 0` later is two variables
with one name, and so it is here. Reaching definitions are walked over the syntax tree; loops are walked until
nothing changes. A read inside a branch or a loop that no assignment reaches belongs to the first assignment
of the name and gives whatever the register holds, as in numba; the same read outside of both is a mistake.
What it leaves out: pruning of branches whose condition is a constant (a web may then be larger than numba's).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

State = dict[str, frozenset[int]] | None
"""Which definitions of each name may reach this point; None where the point cannot be reached."""
UNASSIGNED = -1
"""Among the definitions of a name: a path to this point assigns none."""


@dataclass
class Webs:
    """Hold the webs of one function.

    read, written: id of a Name (or arg) node -> web. names: the local names. definitions: web -> how many
    assignments it has.
    plain_counters: ids of the `for` nodes whose target is assigned by the `for` alone and read inside the
    loop alone.
    """

    read: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    definitions: dict[int, int] = field(default_factory=dict)
    plain_counters: frozenset[int] = frozenset()


def split(func: ast.FunctionDef) -> Webs:
    """Return the webs of a function's variables."""
    walk = _Walk()
    state: State = {}
    arguments = func.args
    for arg in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        state = walk.define(arg, arg.arg, state)
    walk.body(func.body, state)
    return walk.result(func)


def _merge(*states: State) -> State:
    reached = [s for s in states if s is not None]
    if not reached:
        return None
    none, first = frozenset((UNASSIGNED,)), reached[0]
    if all(s == first for s in reached):
        return first
    names = dict.fromkeys(name for s in reached for name in s)
    return {name: frozenset().union(*(s.get(name, none) for s in reached)) for name in names}


class _Walk:
    """Walk statements in order; definitions are numbered by node, so walking a loop twice adds none."""

    def __init__(self) -> None:
        self.number: dict[int, int] = {}
        self.parent: list[int] = []
        self.names: set[str] = set()
        self.uses: dict[int, int] = {}
        self.first: dict[str, int] = {}
        self.unassigned: dict[int, str] = {}
        self.partly: set[int] = set()
        self.depth = 0
        self.breaks: list[list[State]] = []
        self.continues: list[list[State]] = []

    def find(self, d: int) -> int:
        """Return the definition that stands for the web of d."""
        while self.parent[d] != d:
            d = self.parent[d]
        return d

    def define(self, node: ast.AST, name: str, state: State) -> State:
        """Note a definition of a name at a node; return the state behind it."""
        d = self.number.setdefault(id(node), len(self.number))
        if d == len(self.parent):
            self.parent.append(d)
            self.first.setdefault(name, d)
        self.names.add(name)
        return None if state is None else {**state, name: frozenset((d,))}

    def use(self, node: ast.Name, state: State) -> None:
        """Note a use, and join the webs of all definitions that reach it."""
        reaching = sorted((state or {}).get(node.id, ()))
        if reaching and reaching[0] == UNASSIGNED:
            self.partly.add(id(node))
            del reaching[0]
        for d in reaching:
            self.parent[self.find(d)] = self.find(reaching[0])
        if reaching:
            self.uses[id(node)] = reaching[0]
        elif self.depth:
            self.unassigned[id(node)] = node.id

    def reads(self, node: ast.AST | None, state: State) -> None:
        """Note the uses in an expression."""
        for n in ast.walk(node) if node is not None else ():
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                self.use(n, state)

    def writes(self, target: ast.AST, state: State) -> State:
        """Note the definitions in an assignment's target; return the state behind it."""
        for n in ast.walk(target):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                state = self.define(n, n.id, state)
        return state

    def body(self, statements: Iterable[ast.stmt], state: State) -> State:
        """Walk statements in order; return the state behind the last."""
        for s in statements:
            state = self.statement(s, state)
        return state

    def nested(self, statements: Iterable[ast.stmt], state: State) -> State:
        """Walk the statements of an arm or a loop, which some threads may leave out."""
        self.depth += 1
        state = self.body(statements, state)
        self.depth -= 1
        return state

    def statement(self, s: ast.stmt, state: State) -> State:
        """Walk one statement; return the state behind it, None where control never gets there."""
        match s:
            case ast.If():
                self.reads(s.test, state)
                return _merge(self.nested(s.body, state), self.nested(s.orelse, state))
            case ast.For() | ast.While():
                return self.loop(s, state)
            case ast.Break():
                self.breaks[-1].append(state)
                return None
            case ast.Continue():
                self.continues[-1].append(state)
                return None
            case ast.Return():
                self.reads(s.value, state)
                return None
        return self.simple(s, state)

    def simple(self, s: ast.stmt, state: State) -> State:
        """Walk a statement without a body."""
        self.reads(s, state)
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            self.use(s.target, state)
        if isinstance(s, ast.Assign):
            for target in s.targets:
                state = self.writes(target, state)
        elif isinstance(s, (ast.AnnAssign, ast.AugAssign)) and s.value is not None:
            state = self.writes(s.target, state)
        return state

    def loop(self, s: ast.For | ast.While, state: State) -> State:
        """Walk a loop until no more definitions reach its head."""
        if isinstance(s, ast.For):
            self.reads(s.iter, state)
        head, broken = self.iteration(s, state, state)
        while (again := self.iteration(s, state, head)) != (head, broken):
            head, broken = again
        if isinstance(s, ast.While) and isinstance(s.test, ast.Constant) and s.test.value:
            return _merge(*broken)  # `while True` ends by break alone
        return _merge(self.body(s.orelse, head), *broken)

    def iteration(self, s: ast.For | ast.While, before: State, head: State) -> tuple[State, list[State]]:
        """Walk a loop's body once; return what may reach its head then, and what leaves it by break."""
        self.breaks.append([])
        self.continues.append([])
        if isinstance(s, ast.While):
            self.reads(s.test, head)
        end = self.nested(s.body, self.writes(s.target, head) if isinstance(s, ast.For) else head)
        return _merge(before, end, *self.continues.pop()), self.breaks.pop()

    def result(self, func: ast.FunctionDef) -> Webs:
        """Return what the walk found."""
        undefined = {
            node: self.first[name]
            for node, name in self.unassigned.items()
            if node not in self.uses and name in self.first
        }
        definitions: dict[int, int] = {}
        for d in self.number.values():
            definitions[self.find(d)] = definitions.get(self.find(d), 0) + 1
        for d in [*undefined.values(), *(self.uses[node] for node in self.partly)]:
            definitions[self.find(d)] += 1  # whatever it holds there, not the one value assigned to it
        read = {node: self.find(d) for node, d in {**self.uses, **undefined}.items()}
        written = {node: self.find(d) for node, d in self.number.items()}
        plain = frozenset(
            id(f)
            for f in ast.walk(func)
            if isinstance(f, ast.For) and self.plain(f, read, written, definitions)
        )
        return Webs(read, written, frozenset(self.names), definitions, plain)

    def plain(
        self, loop: ast.For, read: dict[int, int], written: dict[int, int], definitions: dict[int, int]
    ) -> bool:
        """Tell whether a loop's variable is defined by the loop alone and read in its body alone."""
        web = written.get(id(loop.target))
        if web is None or definitions[web] != 1:
            return False
        inside = {id(n) for s in loop.body for n in ast.walk(s)}
        return all(node in inside for node, w in read.items() if w == web)
