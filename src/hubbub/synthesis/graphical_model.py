"""Graphical models of a table's columns, fitted to noisy tables: post-processing, which protects nobody.

A model is a distribution over all combinations of values, proportional to the product of one factor e^λ per
cell of each fitted table. It is stored as the marginals of a junction tree's cliques, in log space: −∞ is a
combination that cannot be (a structural zero), and no product underflows. A fit minimises

    n·log Z(λ) − ⟨λ, y⟩ + Σ c·λ²/2

over λ, where y is a table as measured and c its ridge: a cell is moved from what the rest of the model says
only as far as its noise warrants. Block coordinates: one table after the other, all its cells at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.synthesis.junction_tree import JunctionTree, Variables

__all__ = ["GraphicalModel", "Mask", "Reals", "Target", "tilt"]

Reals = NDArray[np.float64]
Message = NDArray[np.float32]
"""Single precision: tables are compared with noisy ones, and messages take most of the memory."""

_MAX_PARAMETER = 25.0
"""λ stays within this: no cell of a table is a factor of e^50 off the rest for lack of data."""
_NEWTON_STEPS = 6
_CELLS_PER_PASS = 700_000
"""Tables of all pairs are computed for a part of the columns at a time, in models with more cells."""
_CELLS_PER_STEP = 300_000
"""Rows of a message are passed on some at a time, in arrays of at most this number of cells."""
_TINY = 1e-280


@dataclass(frozen=True, eq=False)
class Mask:
    """Which cells of a table are possible: a declared rule."""

    variables: Variables
    possible: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Target:
    """A table that a model is fitted to.

    Args:
        variables: the sorted positions of its columns.
        values: the table as measured; its sum should be the model's total.
        ridge: c > 0 of each cell, in the units of values: how strongly λ is held at 0.
    """

    variables: Variables
    values: Reals
    ridge: Reals


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A distribution over all columns, times a total; made by `uniform`, improved by `fit`.

    >>> model = GraphicalModel.uniform((2, 2), total=8.0)
    >>> model.fit([Target((0,), np.array([6.0, 2.0]), np.full(2, 1e-6))]).marginal((0, 1)).round(3).tolist()
    [[3.0, 3.0], [1.0, 1.0]]
    """

    tree: JunctionTree
    total: float
    masks: tuple[Mask, ...]
    targets: tuple[Target, ...]
    parameters: tuple[Reals, ...]
    """λ of each target."""
    _beliefs: list[Reals] = field(repr=False)
    """log of the probability of each cell of each clique."""
    _separators: dict[tuple[int, int], Reals] = field(repr=False)

    @classmethod
    def uniform(cls, sizes: Sequence[int], *, total: float, masks: Iterable[Mask] = ()) -> "GraphicalModel":
        """Return the model in which all possible combinations are equally likely.

        Raises:
            InvalidInput: if the masks leave no combination.
        """
        return _build(tuple(sizes), total, tuple(masks), (), ())

    @classmethod
    def restore(
        cls,
        sizes: Sequence[int],
        total: float,
        masks: Iterable[Mask],
        targets: tuple[Target, ...],
        parameters: tuple[Reals, ...],
    ) -> "GraphicalModel":
        """Return the model with these parameters, as fitted before."""
        return _build(tuple(sizes), total, tuple(masks), targets, parameters)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each column."""
        return self.tree.sizes

    def fit(
        self, targets: Sequence[Target] = (), *, total: float | None = None, sweeps: int = 10
    ) -> "GraphicalModel":
        """Return the model fitted to its targets and these, starting from its own parameters.

        Args:
            targets: further tables.
            total: the sum of every table, if it changes.
            sweeps: how often each table is adjusted.
        """
        parameters = [*self.parameters, *(np.zeros(target.values.shape) for target in targets)]
        model = _build(
            self.sizes,
            self.total if total is None else total,
            self.masks,
            (*self.targets, *targets),
            tuple(parameters),
        )
        model._sweep(sweeps)  # noqa: SLF001 - of its own class
        return model

    def probabilities(self, clique: int) -> Reals:
        """Return the joint probabilities of a clique of the tree."""
        return np.exp(self._beliefs[clique])

    def marginal(self, variables: Variables) -> Reals:
        """Return the expected table of any columns, in their order."""
        requested = tuple(sorted(variables))
        table, order = self._collect(requested)
        return self.total * _transpose(table, order, tuple(variables))

    def pairs(
        self, focus: int | None = None, is_wanted: Callable[[Variables], bool] = lambda _: True
    ) -> Iterator[tuple[Variables, Reals]]:
        """Yield the expected table of every two columns; with a focus, of the focus and these two.

        All pairs share their messages along the tree, so that this takes about as long as one sweep of a fit.

        Args:
            focus: a column that is in every clique, as after tables of it and each column were fitted.
            is_wanted: which pairs are yielded: those of columns with very many values would fill memory.
        """
        yield from _Pairs(self, focus, is_wanted).tables()

    def _sweep(self, sweeps: int) -> None:
        """Adjust every table in turn, along an Euler tour, `sweeps` times; then calibrate.

        Changes the arrays of this model, which `fit` has just built.
        """
        hosted: dict[int, list[int]] = {}
        for at, target in enumerate(self.targets):
            host = self.tree.host(target.variables)
            assert host is not None
            hosted.setdefault(host, []).append(at)
        supports = [self._support(target) for target in self.targets]
        tour = self.tree.euler_tour()
        for _ in range(sweeps):
            visited: set[int] = set()
            for step, clique in enumerate(tour):
                if step:
                    self._send(tour[step - 1], clique)
                if clique in hosted and clique not in visited:
                    visited.add(clique)
                    self._adjust(clique, hosted[clique], supports)
            # Another tour starts where this one ended.
        self._calibrate()

    def _support(self, target: Target) -> NDArray[np.bool_]:
        host = self.tree.host(target.variables)
        assert host is not None
        return np.isfinite(_log_marginal(self._beliefs[host], self.tree.cliques[host], target.variables))

    def _adjust(self, clique: int, which: list[int], supports: list[NDArray[np.bool_]]) -> None:
        """Adjust the tables of a clique, one after the other."""
        variables, belief = self.tree.cliques[clique], self._beliefs[clique]
        linear = np.exp(belief - belief.max())
        for at in which:
            target, parameters = self.targets[at], self.parameters[at]
            expected = _marginal(linear, variables, target.variables)
            expected *= self.total / expected.sum()
            step = _solve(expected, target, parameters, supports[at])
            parameters += step
            shape = _broadcast_shape(target.variables, variables, self.tree.sizes)
            linear *= np.exp(step).reshape(shape)
            belief += step.reshape(shape)
        self._normalise(clique)

    def _normalise(self, clique: int) -> None:
        belief = self._beliefs[clique]
        top = belief.max()
        log_total = float(top + np.log(np.exp(belief - top).sum()))
        assert np.isfinite(log_total), "the model has no finite total"
        belief -= log_total

    def _send(self, source: int, target: int) -> None:
        """Pass to the neighbour what the source now says about their separator."""
        key = (min(source, target), max(source, target))
        variables = self.tree.separator(source, target)
        old = self._separators[key]
        new = _log_marginal(self._beliefs[source], self.tree.cliques[source], variables, old)
        with np.errstate(invalid="ignore"):
            change = np.where(np.isneginf(new), np.where(np.isneginf(old), 0.0, -np.inf), new - old)
        self._separators[key] = new
        self._beliefs[target] += change.reshape(
            _broadcast_shape(variables, self.tree.cliques[target], self.tree.sizes)
        )

    def _calibrate(self) -> None:
        """Make all cliques agree on their separators, and normalise them."""
        for parent, child in reversed(self.tree.edges):
            self._send(child, parent)
        self._normalise(0)
        for parent, child in self.tree.edges:
            self._send(parent, child)
            self._normalise(child)

    def _collect(self, requested: Variables) -> tuple[Reals, Variables]:
        """Return the probabilities of these columns, and in which order they are."""
        host = self.tree.host(requested)
        if host is not None:
            return _marginal(self.probabilities(host), self.tree.cliques[host], requested), requested
        around: dict[int, list[int]] = {}
        for one, other in self.tree.edges:
            around.setdefault(one, []).append(other)
            around.setdefault(other, []).append(one)

        def message(clique: int, parent: int | None) -> tuple[Reals, Variables] | None:
            """Return Σ of all on this side given the separator; None if it has no requested column."""
            variables = self.tree.cliques[clique]
            separator = self.tree.separator(clique, parent) if parent is not None else ()
            messages = [message(child, clique) for child in around.get(clique, ()) if child != parent]
            parts = [part for part in messages if part is not None]
            if not parts and not (set(requested) & set(variables)) - set(separator):
                return None
            table, order = self.probabilities(clique), variables
            for index, (part, part_order) in enumerate(parts):
                later = {v for _, names in parts[index + 1 :] for v in names} & set(variables)
                needed = tuple(sorted({*order, *part_order} & ({*requested, *separator} | later)))
                table, order = _contract(table, order, part, part_order, needed), needed
            needed = tuple(sorted(set(order) & {*requested, *separator}))
            table, order = _marginal(table, order, needed), needed
            if separator:
                below = _marginal(table, order, separator)
                table = _divide(table, below.reshape(_broadcast_shape(separator, order, self.tree.sizes)))
            return table, order

        root = max(range(len(self.tree.cliques)), key=lambda at: len({*self.tree.cliques[at]} & {*requested}))
        collected = message(root, None)
        assert collected is not None
        return collected


def _build(
    sizes: tuple[int, ...],
    total: float,
    masks: tuple[Mask, ...],
    targets: tuple[Target, ...],
    parameters: tuple[Reals, ...],
) -> GraphicalModel:
    """Return the calibrated model with these parameters."""
    tree = JunctionTree.of(sizes, [*(t.variables for t in targets), *(m.variables for m in masks)])
    beliefs = [np.zeros(tree.shape(clique)) for clique in tree.cliques]
    for target, values in zip(targets, parameters, strict=True):
        _multiply(tree, beliefs, target.variables, values)
    for mask in masks:
        with np.errstate(divide="ignore"):
            _multiply(tree, beliefs, mask.variables, np.log(mask.possible.astype(np.float64)))
    separators = {(min(edge), max(edge)): np.zeros(tree.shape(tree.separator(*edge))) for edge in tree.edges}
    model = GraphicalModel(
        tree, total, masks, targets, tuple(p.copy() for p in parameters), beliefs, separators
    )
    for parent, child in reversed(tree.edges):
        model._send(child, parent)  # noqa: SLF001 - built here, beside the class
    if np.isneginf(beliefs[0].max()):
        raise InvalidInput(
            "the rules leave no combination of values",
            why="no row could follow all of them",
            fix="check that every value is possible with some value of each other column",
            parameter="rules",
        )
    model._calibrate()  # noqa: SLF001 - as above
    return model


def _multiply(tree: JunctionTree, beliefs: list[Reals], variables: Variables, logs: Reals) -> None:
    host = tree.host(variables)
    assert host is not None
    beliefs[host] += logs.reshape(_broadcast_shape(variables, tree.cliques[host], tree.sizes))


def _solve(expected: Reals, target: Target, parameters: Reals, possible: NDArray[np.bool_]) -> Reals:
    """Return d with expected·e^d + ridge·(λ + d) = values, in every cell, with λ + d clipped to ±25.

    With w = expected·e^d/ridge this is w + log w = a, which Newton's method solves in a few steps from any
    start. A constant added to λ changes the ridge alone, so it is chosen such that Σ ridge·(λ + d) = 0, its
    optimum; without that, fits approach it slowly. Impossible cells are left alone.
    """
    ridge = target.ridge
    right = target.values / ridge - parameters
    log_ratio = np.log(np.maximum(expected, 1e-300)) - np.log(ridge)
    a = np.maximum(log_ratio + right, -600.0)  # below that, w adds nothing
    w = np.where(a > 1.0, a - np.log(np.maximum(a, 1.0)), np.exp(np.minimum(a, 1.0)))
    for _ in range(_NEWTON_STEPS):
        w *= (1.0 + a - np.log(w)) / (1.0 + w)
    moved = parameters + np.where(a > 1.0, np.log(w) - log_ratio, right - w)
    centered = moved - (ridge * moved)[possible].sum() / ridge[possible].sum()
    # Where a cell is clipped, the constant is no longer free: a shift would clip the other cells, too.
    if np.abs(np.where(possible, centered, 0.0)).max() < _MAX_PARAMETER:
        moved = centered
    np.clip(moved, -_MAX_PARAMETER, _MAX_PARAMETER, out=moved)
    step: Reals = np.where(possible, moved - parameters, 0.0)
    return step


def tilt(expected: Reals, target: Target) -> Reals:
    """Return one table of a model as it were if the model was fitted to this target as well, and no other."""
    step = _solve(expected, target, np.zeros(expected.shape), expected > 0)
    moved: Reals = expected * np.exp(step)
    return moved


def _broadcast_shape(variables: Variables, within: Variables, sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes[v] if v in variables else 1 for v in within)


def _marginal(table: Reals, order: Variables, requested: Variables) -> Reals:
    """Sum a table over all columns but the requested ones, which are in the same order."""
    axes = tuple(axis for axis, variable in enumerate(order) if variable not in requested)
    summed: Reals = table.sum(axis=axes) if axes else table.copy()
    return summed


def _log_marginal(belief: Reals, order: Variables, requested: Variables, old: Reals | None = None) -> Reals:
    """Return the log of the marginal of e^belief.

    In linear space, unless that underflows in a cell that is not a structural zero, as far as `old` says.
    """
    axes = tuple(axis for axis, variable in enumerate(order) if variable not in requested)
    if not axes:
        return belief.copy()
    top = belief.max()
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        if old is not None and np.isfinite(top):
            summed = np.exp(belief - top).sum(axis=axes)
            if not ((summed < _TINY) & np.isfinite(old)).any():
                fast: Reals = np.log(summed) + top
                return fast
        tops = belief.max(axis=axes, keepdims=True)
        shifted = np.where(np.isneginf(tops), 0.0, tops)
        logs: Reals = np.log(np.exp(belief - shifted).sum(axis=axes)) + shifted.reshape(
            tuple(size for axis, size in enumerate(tops.shape) if axis not in axes)
        )
    return logs


def _divide(table: Reals, by: Reals) -> Reals:
    """Divide, with 0/0 = 0."""
    quotient: Reals = np.divide(
        table, by, out=np.zeros(np.broadcast_shapes(table.shape, by.shape)), where=by > 0
    )
    return quotient


def _transpose(table: Reals, order: Variables, requested: Variables) -> Reals:
    return table.transpose([order.index(v) for v in requested])


def _contract(
    left: Reals, left_order: Variables, right: Reals, right_order: Variables, requested: Variables
) -> Reals:
    """Multiply two tables and sum over all columns but the requested ones, by matrix products."""
    left_needed = tuple(v for v in left_order if v in requested or v in right_order)
    right_needed = tuple(v for v in right_order if v in requested or v in left_order)
    left, right = _marginal(left, left_order, left_needed), _marginal(right, right_order, right_needed)
    both = [v for v in left_needed if v in right_needed]
    batch = [v for v in both if v in requested]
    summed = [v for v in both if v not in requested]
    rows = [v for v in left_needed if v not in both]
    columns = [v for v in right_needed if v not in both]
    sizes = {
        **dict(zip(left_needed, left.shape, strict=True)),
        **dict(zip(right_needed, right.shape, strict=True)),
    }
    one = _transpose(left, left_needed, (*batch, *rows, *summed))
    other = _transpose(right, right_needed, (*batch, *summed, *columns))

    def cells(variables: list[int]) -> int:
        return prod(sizes[v] for v in variables)

    product = one.reshape(cells(batch), cells(rows), cells(summed)) @ other.reshape(
        cells(batch), cells(summed), cells(columns)
    )
    order = (*batch, *rows, *columns)
    return _transpose(product.reshape([sizes[v] for v in order]), order, requested)


class _Pairs:
    """Tables of all pairs of columns of a model, by messages of all columns at once.

    The message from a clique to its neighbour has one row for each value of each column on its side, and one
    column for each cell of the separator: their joint probability. With a focus, all this is for each of its
    values.
    """

    def __init__(
        self, model: GraphicalModel, focus: int | None, is_wanted: Callable[[Variables], bool]
    ) -> None:
        self._model, self._focus, self._is_wanted = model, focus, is_wanted
        self._tree = model.tree
        self._probabilities = [model.probabilities(at) for at in range(len(self._tree.cliques))]
        self._around: dict[int, list[int]] = {at: [] for at in range(len(self._tree.cliques))}
        for one, other in self._tree.edges:
            self._around[one].append(other)
            self._around[other].append(one)
        self._done: dict[tuple[int, int], tuple[list[int], Message]] = {}
        self._uses: dict[tuple[int, int], int] = {}
        self._columns: set[int] = set()
        if focus is not None:
            assert all(focus in clique for clique in self._tree.cliques)

    def tables(self) -> Iterator[tuple[Variables, Reals]]:
        tree, total = self._tree, self._model.total
        seen: set[Variables] = set()
        for at, clique in enumerate(tree.cliques):
            others = [v for v in clique if v != self._focus]
            for pair in combinations(others, 2):
                is_here = pair not in seen and tree.host(self._with_focus(pair)) == at
                if is_here and self._is_wanted(pair):
                    seen.add(pair)
                    yield pair, total * self._joint(at, pair)
        all_pairs = combinations(range(len(tree.sizes)), 2)
        variables = {v for pair in all_pairs if self._is_wanted(pair) for v in pair}
        # Rows of messages are independent: in a large model, a part of the columns at a time, of about as
        # many values as the others.
        groups: list[set[int]] = [set() for _ in range(-(-tree.cells // _CELLS_PER_PASS))]
        for variable in sorted(variables, key=lambda v: -tree.sizes[v]):
            min(groups, key=lambda group: sum(tree.sizes[v] for v in group)).add(variable)
        for group in filter(None, groups):
            self._columns = group
            yield from self._distant_tables(seen)

    def _distant_tables(self, seen: set[Variables]) -> Iterator[tuple[Variables, Reals]]:
        """Yield the tables of pairs that share no clique, of the columns that are passed on now."""
        tree, total = self._tree, self._model.total
        for source, target in self._edges_upwards():
            self._make_message(source, target)
        # A column of the target that its parent does not have meets all columns beyond the parent here.
        for source, target in self._edges_downwards():
            rows, message = self._make_message(source, target)
            if not rows:
                continue
            separator = tree.separator(source, target)
            stops = np.cumsum([tree.sizes[variable] for variable in rows]).tolist()
            for new in set(tree.cliques[target]) - set(separator):
                pairs = [(min(variable, new), max(variable, new)) for variable in rows]
                if not any(map(self._is_wanted, pairs)):
                    continue
                conditional = self._conditional(target, separator, (new,))
                # One product is faster than one for each column, but holds all of their tables.
                whole = message @ conditional if all(map(self._is_wanted, pairs)) else None
                for start, stop, variable, pair in zip([0, *stops], stops, rows, pairs, strict=False):
                    if pair in seen or not self._is_wanted(pair):
                        continue
                    seen.add(pair)
                    table = message[:, start:stop] @ conditional if whole is None else whole[:, start:stop]
                    table = total * (table if variable < new else table.transpose(0, 2, 1)).astype(np.float64)
                    yield pair, table if self._focus is not None else table[0]

    def _with_focus(self, pair: Variables) -> Variables:
        return pair if self._focus is None else tuple(sorted((self._focus, *pair)))

    def _joint(self, clique: int, pair: Variables) -> Reals:
        requested = self._with_focus(pair)
        table = _marginal(self._probabilities[clique], self._tree.cliques[clique], requested)
        return table if self._focus is None else _transpose(table, requested, (self._focus, *pair))

    def _arranged(self, clique: int, *groups: Variables) -> Reals:
        """Return the probabilities of some columns of a clique, with the focus and each group as one axis."""
        order = tuple(v for group in groups for v in group)
        focus = () if self._focus is None else (self._focus,)
        requested = tuple(sorted((*focus, *order)))
        table = _transpose(
            _marginal(self._probabilities[clique], self._tree.cliques[clique], requested),
            requested,
            (*focus, *order),
        )
        sizes = self._tree.sizes
        shape = [prod(sizes[v] for v in group) for group in (focus, *groups)]
        return table.reshape(shape)

    def _conditional(self, clique: int, separator: Variables, new: Variables) -> Message:
        """Return the probability of the new columns given the separator (and the focus)."""
        condition = tuple(v for v in separator if v != self._focus)
        joint = self._arranged(clique, condition, new)
        below = joint.sum(axis=2, keepdims=True)
        # In place; where nothing is below, all cells are 0 already.
        np.divide(joint, below, out=joint, where=below > 0)
        return joint.astype(np.float32)

    def _edges_upwards(self) -> list[tuple[int, int]]:
        return [(child, parent) for parent, child in reversed(self._tree.edges)]

    def _edges_downwards(self) -> list[tuple[int, int]]:
        """All edges, those of one clique together and depth first, so that few messages are held at once."""
        children: dict[int, list[int]] = {}
        for parent, child in self._tree.edges:
            children.setdefault(parent, []).append(child)
        edges, stack = [], [0]
        while stack:
            parent = stack.pop()
            edges += [(parent, child) for child in children.get(parent, ())]
            stack += reversed(children.get(parent, ()))
        return edges

    def _make_message(self, source: int, target: int) -> tuple[list[int], Message]:
        """Return the columns on the source's side, and the joint table of their values and the separator."""
        separator = tuple(v for v in self._tree.separator(source, target) if v != self._focus)
        sizes, clique = self._tree.sizes, self._tree.cliques[source]
        rows = [v for v in clique if v in self._columns and v not in separator and v != self._focus]
        own = len(rows)
        earlier: list[tuple[int, Message]] = []
        for other in self._around[source]:
            if other != target:
                beyond, message = self._use(other, source)
                if beyond:
                    rows += beyond
                    earlier.append((other, message))
        focus = 1 if self._focus is None else sizes[self._focus]
        shape = focus, sum(sizes[v] for v in rows), prod(sizes[v] for v in separator)
        joined: Message = np.empty(shape, dtype=np.float32)
        start = 0
        for v in rows[:own]:
            joined[:, start : start + sizes[v]] = self._arranged(source, (v,), separator)
            start += sizes[v]
        for other, message in earlier:
            stop = start + message.shape[1]
            before = tuple(v for v in self._tree.separator(other, source) if v != self._focus)
            self._pass_on(message, before, separator, source, joined[:, start:stop])
            start = stop
        self._done[source, target] = rows, joined
        self._uses[source, target] = len(self._around[target]) - 1
        return rows, joined

    def _use(self, source: int, target: int) -> tuple[list[int], Message]:
        """Return a message, and forget it after its last use."""
        self._uses[source, target] -= 1
        if self._uses[source, target] > 0:
            return self._done[source, target]
        return self._done.pop((source, target))

    def _pass_on(
        self,
        message: Message,
        own: Variables,
        separator: Variables,
        clique: int,
        out: Message,
    ) -> None:
        """Write the joint table of a message's rows and another separator of the clique to `out`."""
        fresh = tuple(v for v in separator if v not in own)
        old = tuple(v for v in separator if v in own)
        sizes = self._tree.sizes
        gone = tuple(v for v in own if v not in old)
        focus, rows, _ = message.shape
        # Axes: focus, rows, own separator as (old, gone).
        places = [2 + own.index(v) for v in (*old, *gone)]
        stay, go = prod(sizes[v] for v in old), prod(sizes[v] for v in gone)
        order = (*old, *fresh)
        back = [2 + order.index(v) for v in separator]
        if fresh:
            conditional = self._conditional(clique, (*old, *gone), fresh).reshape(focus, stay, go, -1)
        # Some rows at a time, or the arranged copies would be larger than the message.
        step = max(1, _CELLS_PER_STEP // max(1, focus * stay * max(go, prod(sizes[v] for v in fresh))))
        for start in range(0, rows, step):
            part = message[:, start : start + step]
            table = part.reshape(focus, -1, *(sizes[v] for v in own))
            arranged = table.transpose(0, 1, *places).reshape(focus, -1, stay, go)
            if not fresh:
                summed = arranged.sum(axis=3)
            else:
                # For each value of the columns that stay, a matrix product over those that go.
                summed = (arranged.transpose(0, 2, 1, 3) @ conditional).transpose(0, 2, 1, 3)
            summed = summed.reshape(focus, -1, *(sizes[v] for v in order)).transpose(0, 1, *back)
            out[:, start : start + step] = summed.reshape(focus, -1, out.shape[2])
