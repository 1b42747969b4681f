"""Types as an editor sees them: checked by mypy, which reads this file together with the sources."""

from typing import assert_type

from hubbub import Gaussian, Laplace, PermuteAndFlip, Release, ReportNoisyMaxWithGap, TopK, select_and_measure
from hubbub.mechanisms.selection import WinnerWithGap, WinnerWithScore

laplace = Laplace.of(sensitivity=1, epsilon=0.5)
select = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)

assert_type(laplace, Laplace)
assert_type(laplace.release(42), Release[float])
assert_type(laplace.release(42).map(str), Release[str])
assert_type(laplace.release(42).map(str).value.upper(), str)
assert_type(Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6).release(42).value, float)
assert_type(select.release([3, 1, 2]).value, int)
assert_type(TopK(select, 2).release([3, 1, 2]).value, list[int])
assert_type(ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1).release([3, 1]).value, WinnerWithGap)
assert_type(select_and_measure([3, 1, 2], select, laplace).value, WinnerWithScore)
