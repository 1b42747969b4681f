"""One outcome per charge: what comes out after the engine has run.

| row | what an attacker does | mutant |
|---|---|---|
"""

from attacks.rows import Row, both_tests

ROWS: list[Row] = []

test_ours_resists, test_mutant_falls = both_tests(ROWS)
