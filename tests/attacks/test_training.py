"""Examples stay apart at every step.

| row | what an attacker does | mutant |
|---|---|---|
"""

from attacks.rows import Row, both_tests

ROWS: list[Row] = []

test_ours_resists, test_mutant_falls = both_tests(ROWS)
