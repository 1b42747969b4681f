"""Intervals that hold, and the time of joins.

| row | what an attacker does | mutant |
|---|---|---|
"""

from attacks.rows import Row, both_tests

ROWS: list[Row] = []

test_ours_resists, test_mutant_falls = both_tests(ROWS)
