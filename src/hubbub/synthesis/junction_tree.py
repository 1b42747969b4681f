"""Junction trees: which tables a graphical model of several tables keeps, and how they are connected.

Variables are numbers, the positions of columns; a table is a sorted tuple of them. Tables that overlap are
merged by triangulation into *cliques*; every table lies within a clique, and the cliques form a tree in which
those that share a variable are connected through it. The memory of a model is that of its cliques, so a cap
on cells is a cap on these, and not on the tables that were asked for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

__all__ = ["JunctionTree", "Variables", "count_cells", "find_cliques"]

Variables = tuple[int, ...]
"""A table: the sorted positions of its columns."""


def find_cliques(sizes: Sequence[int], tables: Iterable[Variables]) -> list[Variables]:
    """Return the maximal cliques of the triangulated graph in which the variables of a table are connected.

    Variables are eliminated one at a time, that with the fewest cells first (minimum weight, the first of
    equals). This is greedy: with one table more there may be fewer cells.

    >>> find_cliques([2, 3, 4, 5], [(0, 1), (1, 2), (2, 3), (0, 3)])
    [(0, 1, 2), (0, 2, 3)]
    """
    count = len(sizes)
    neighbours = [0] * count
    for table in tables:
        members = sum(1 << variable for variable in table)
        for variable in table:
            neighbours[variable] |= members
    for variable in range(count):
        neighbours[variable] &= ~(1 << variable)
    cells = [sizes[v] * prod(sizes[u] for u in _variables(neighbours[v])) for v in range(count)]
    left = set(range(count))
    cliques: list[int] = []
    while left:
        variable = min(left, key=lambda v: (cells[v], v))
        left.remove(variable)
        around = neighbours[variable]
        clique = around | 1 << variable
        if not any(clique & ~other == 0 for other in cliques):
            cliques.append(clique)
        for u in _variables(around):
            added = around & ~neighbours[u] & ~(1 << u)
            neighbours[u] = (neighbours[u] | added) & ~(1 << variable)
            # Exact integers: what the clique of u loses and gains.
            cells[u] //= sizes[variable]
            for w in _variables(added):
                cells[u] *= sizes[w]
    return sorted(tuple(_variables(clique)) for clique in cliques)


def count_cells(sizes: Sequence[int], tables: Iterable[Variables]) -> int:
    """Return the cells of all cliques that a model of these tables needs.

    >>> count_cells([2, 3, 4, 5], [(0, 1), (1, 2), (2, 3), (0, 3)])
    64
    """
    return sum(prod(sizes[v] for v in clique) for clique in find_cliques(sizes, tables))


def _variables(mask: int) -> list[int]:
    members = []
    while mask:
        lowest = mask & -mask
        members.append(lowest.bit_length() - 1)
        mask ^= lowest
    return members


@dataclass(frozen=True)
class JunctionTree:
    """The cliques of several tables, as a tree; an empty separator connects those that share nothing.

    >>> tree = JunctionTree.of([2, 3, 4], [(0, 1), (1, 2)])
    >>> tree.cliques, tree.edges, tree.separator(0, 1), tree.cells
    (((0, 1), (1, 2)), ((0, 1),), (1,), 18)
    """

    sizes: tuple[int, ...]
    cliques: tuple[Variables, ...]
    edges: tuple[tuple[int, int], ...]
    """From a clique to one further from the first clique; each clique but the first is reached once."""

    @classmethod
    def of(cls, sizes: Sequence[int], tables: Iterable[Variables]) -> "JunctionTree":
        """Triangulate, and connect the cliques by a maximum spanning tree (of sizes of separators)."""
        cliques = find_cliques(sizes, tables)
        masks = [sum(1 << v for v in clique) for clique in cliques]
        outside = dict.fromkeys(range(1, len(cliques)), (-1, 0))
        edges: list[tuple[int, int]] = []
        newest = 0
        while (
            outside
        ):  # Prim's algorithm: the running intersection property holds for a maximum spanning tree
            for clique, (shared, _) in outside.items():
                common = (masks[clique] & masks[newest]).bit_count()
                # Cliques that share nothing form a chain: a clique with many neighbours passes many messages.
                if common > shared or common == shared == 0:
                    outside[clique] = (common, newest)
            newest = max(outside, key=lambda clique: (outside[clique][0], -clique))
            edges.append((outside.pop(newest)[1], newest))
        return cls(tuple(sizes), tuple(cliques), tuple(edges))

    @property
    def cells(self) -> int:
        """The number of cells of all cliques."""
        return sum(prod(self.shape(clique)) for clique in self.cliques)

    def shape(self, variables: Variables) -> tuple[int, ...]:
        """Return the sizes of these variables."""
        return tuple(self.sizes[v] for v in variables)

    def separator(self, one: int, other: int) -> Variables:
        """Return the variables that two cliques share."""
        return tuple(v for v in self.cliques[one] if v in self.cliques[other])

    def host(self, table: Variables) -> int | None:
        """Return the smallest clique that contains the table, if one does."""
        requested = set(table)
        hosts = [at for at, clique in enumerate(self.cliques) if requested.issubset(clique)]
        return min(hosts, key=lambda at: prod(self.shape(self.cliques[at])), default=None)

    def euler_tour(self) -> list[int]:
        """Return a walk from the first clique through all of them and back, along edges.

        >>> JunctionTree.of([2, 2, 2, 2], [(0, 1), (1, 2), (1, 3)]).euler_tour()
        [0, 1, 0, 2, 0]
        """
        children: dict[int, list[int]] = {}
        for parent, child in self.edges:
            children.setdefault(parent, []).append(child)
        tour, stack = [0], [(0, iter(children.get(0, ())))]
        while stack:
            _, following = stack[-1]
            for child in following:
                tour.append(child)
                stack.append((child, iter(children.get(child, ()))))
                break
            else:
                stack.pop()
                if stack:
                    tour.append(stack[-1][0])
        return tour
