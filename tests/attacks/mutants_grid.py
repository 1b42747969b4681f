"""Weak versions of ours, each with the hole that one attack on intervals, meaning or time finds."""

from fractions import Fraction


def coarse_grid(values, bounds, copies):
    """A67: each value is rounded to one of 2^16 steps between its bounds before it is added up."""
    low, high = (Fraction(end) for end in bounds)
    step = (high - low) / 2**16
    return float(sum(low + step * round((Fraction(value) - low) / step) for value in values) * copies)
