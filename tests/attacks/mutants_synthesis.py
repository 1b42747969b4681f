"""Weak versions of synthesis, each with the hole that one attack finds."""

from math import prod

import numpy as np

from hubbub.synthesis.binning import prefix_sensitivity, transform_histogram


def bins_of_the_rows(values):
    """A84: cuts are quantiles of the rows."""
    return np.quantile(np.array(values), [0.25, 0.5, 0.75]).tolist()


def norm_of_one_cell(histogram, counts):
    """A86: noise for a row that moves one of the integers, not all that follow."""
    integers = transform_histogram(histogram)
    return integers, prefix_sensitivity(1, counts).l2_squared


def sum_of_tables(sizes, tables):
    """A87: a cap on the cells of the tables, not on those of the cliques that they make."""
    return sum(prod(sizes[v] for v in table) for table in tables)


def pairs_that_occur(counts):
    """A88: a combination without rows is taken to be impossible."""
    return [counts.count(("a", "b")) > 0]


def rows_counted_for_nothing(run):
    """A89: the number of rows is measured, and nothing is drawn for it."""
    used, draws = run()
    return used, draws[1:]
