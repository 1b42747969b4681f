"""Every known attack on the core, the test that makes it, and the weak version it is seen to break.

| row | leak | test | mutant |
|---|---|---|---|
| A01 | is y − x reachable as b·ln(k/2^53)? (Mironov 2012) | floats | inverse_laplace |
| A02 | lowest set bit of the output (Haney 2022) | floats | added_to_a_double |
| A03 | the support of single-precision noise, enumerated | floats | single_precision |
| A04 | noise beyond 2^53 cast to a double before it is added | floats | noise_cast_to_double |
| A05 | integers through doubles: 2^60+128 against 2^60+129 | integers | integers_through_doubles |
| A06 | a sum that overflows | integers | wrapping_sum |
| A06-sql | a sum that overflows, through SQL | sql | sum_in_64_bits |
| A07 | a row that is NaN | integers | nan_passes_the_clamp |
| A07-sql | a row that is NaN, through SQL | sql | cast_before_the_clamp |
| A08-sql | a missing value filled with NaN | sql | filled_with_nan |
| A09-sql | casts that fail, then a count | sql | counted_as_declared |
| A10-sql | a cast to a narrow type | sql | narrow_cast |
| A11 | a threshold by > where ≥ was analysed; tails | selection | strict_tail |
| A11-gaussian | the same, Gaussian | selection | strict_gaussian_tail |
| A11-threshold | the same, sparse vector | selection | strictly_above |
| A11-keys | the same, keys of one unit | selection | keys_above_charged_as |
| A12 | output length depends on data | selection | histogram_of_what_is_there |
| A12-sql | keys that only one neighbour has | sql | groups_that_are_there |
| A13-sql | a mean of few values among many missing | sql | mean_by_all_rows |
| A14 | bounds taken from the data | integers | bounds_from_the_rows |
| A14-sql | bounds taken from the rows, through SQL | sql | bounds_of_what_is_there |
| A15 | bounds not enforced | integers | bounds_not_enforced |
| A15-sql | bounds not enforced, through SQL | sql | bounds_believed |
| A16 | rounding and reordering of a float sum | floats | float_sum |
| A16-sql | the order of a unit's own rows | sql | sum_of_doubles |
| A17 | −0 counted twice in a two-sided geometric law | samplers | negative_zero |
| A17-large | the same at a large scale | samplers | negative_zero |
| A18 | noise truncated | integers | truncated_noise |
| A18-cut | noise cut where it no longer fits, output not | integers | not_clamped |
| A18-keys | noise truncated, the bar for keys not | selection | keys_with_noise_cut_short |
| A19-laplace | a scale 5 % too small | samplers | laplace_5_percent_short |
| A19-large-laplace | the same at a large scale | samplers | laplace_5_percent_short |
| A19-gaussian | σ 5 % too small | samplers | gaussian_5_percent_short |
| A19-large-gaussian | the same at a large σ | samplers | gaussian_5_percent_short |
| A19-discrete-gaussian | σ 5 % too small | samplers | discrete_gaussian_5_percent_short |
| A19-large-discrete-gaussian | the same at a large σ | samplers | discrete_gaussian_5_percent_short |
| A19-geometric | a scale 5 % too small | samplers | geometric_5_percent_short |
| A19-large-geometric | the same at a large scale | samplers | geometric_5_percent_short |
| A20 | randomized response by a bit off by one | samplers | bit_off_by_one |
| A20-loud | randomized response with ε 5 % too large | samplers | response_5_percent_loud |
| A21 | permute-and-flip charged as bounded range | selection | bounded_range_charge |
| A22 | discrete Gaussian with the continuous δ | samplers | discrete_gaussian_with_the_continuous_claim |
| A23 | cancellation where δ is tiny | parameters | naive_calibration |
| A24 | work depends on the noise | time | flip_by_flip |
| A24-vectors | the same, many draws at once | time | flip_by_flip_vector |
| A24-data | work depends on the data | time | flip_until_heads |
| A25 | a guessable generator, or a seed | entropy | ANOTHER_GENERATOR |
| A26 | forks or threads repeat the stream | entropy | seeded_at_import |
| A27 | parameters NaN, infinite, 0, below 0; products that overflow | parameters | unchecked_laplace |
| A28 | coins that underflow | selection | underflowing_coin |
| A28-choice | weights that underflow | selection | underflowing_choice |
| A29 | an exception that depends on data | parameters | failing_count |
| A29-values | an exception that shows data | parameters | shows_what_it_refuses |
| A29-sql | a row that makes an expression fail | sql | as_it_was_written |
| A30 | bounds of a copy that is not used | integers | StaleBounds |
| A30-sql | bounds of a column before it was computed with | sql | bounds_of_another_step |

Rows that end in -sql are made through SQL, against the engine's exact integers. Those from A31 on are attacks
on the edges: each theme has a table in the docstring of its tests, and its mutants in a file of their own.
"""

import importlib
import inspect

import pytest

from attacks import mutants, sql_mutants

THEMES = ["floats", "integers", "samplers", "selection", "parameters", "entropy", "time", "sql"]
EDGES = [
    "outcome",
    "files",
    "ledger",
    "declared",
    "training",
    "policy",
    "meaning",
    "grid",
    "quantiles",
    "synopsis",
    "synthesis",
]


def _table():
    return {row: (theme, mutant) for row, _, theme, mutant in _lines(__doc__)}


def _lines(text):
    """The rows of a table in a docstring."""
    lines = [line for line in text.splitlines() if line.startswith("| A")]
    return [tuple(map(str.strip, line.split("|")[1:-1])) for line in lines]


def _modules():
    return {theme: importlib.import_module(f"attacks.test_{theme}") for theme in THEMES}


def _edges():
    """The modules of attacks on the edges, with those of their mutants."""
    return {
        theme: tuple(importlib.import_module(f"attacks.{kind}_{theme}") for kind in ("test", "mutants"))
        for theme in EDGES
    }


def test_every_row_of_the_catalogue_is_attacked():
    edges = [row for module, _ in _edges().values() for row, *_ in _lines(module.__doc__)]
    assert sorted({name.partition("-")[0] for name in (*_table(), *edges)}) == [
        f"A{number:02}" for number in range(1, 93)
    ]
    assert len(set(edges)) == len(edges)


@pytest.mark.parametrize("theme", EDGES)
def test_every_boundary_has_attacks_and_mutants(theme):
    module, weak = _edges()[theme]
    table = {row: mutant for row, _, mutant in _lines(module.__doc__)}
    assert sorted(row.name for row in module.ROWS) == sorted(table)
    for row in module.ROWS:
        attack = getattr(row.attack, "func", row.attack)
        assert attack.__name__.startswith(f"attack_{row.name.partition('-')[0]}")
    public = {
        name
        for name, value in vars(weak).items()
        if getattr(value, "__module__", None) == weak.__name__ and not name.startswith("_")
    }
    assert public == set(table.values())
    for row, mutant in table.items():
        assert row.partition("-")[0] in getattr(weak, mutant).__doc__


def test_catalogue_table_lists_the_attacks_that_run():
    run = [(row.name, theme) for theme, module in _modules().items() for row in module.ROWS]

    assert sorted(run) == sorted((row, theme) for row, (theme, _) in _table().items())
    assert len(set(run)) == len(run)


def test_every_attack_is_a_function_named_after_its_row():
    for module in _modules().values():
        for row in module.ROWS:
            attack = getattr(row.attack, "func", row.attack)
            assert attack.__name__.startswith(f"attack_{row.name.partition('-')[0]}")
            assert getattr(module, attack.__name__) is attack


def test_every_row_has_its_mutant_and_every_mutant_its_row():
    table = _table()
    for row, (theme, mutant) in table.items():
        assert f"mutants.{mutant}" in inspect.getsource(_modules()[theme]) or theme == "entropy"
        weak = getattr(sql_mutants if theme == "sql" else mutants, mutant)
        assert callable(weak) is (mutant != "ANOTHER_GENERATOR")
        assert row.partition("-")[0] in (weak.__doc__ if callable(weak) else inspect.getsource(mutants))

    public = {
        name
        for module in (mutants, sql_mutants)
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and not name.startswith("_")
        and name not in {"table", "insert_rows"}
    }
    assert public | {"ANOTHER_GENERATOR"} == {mutant for _, mutant in table.values()}


def test_random_attacks_find_their_mutants_almost_surely():
    """Whatever draws at random says how rarely it misses; the others find the mutant every time."""
    by_chance = {row.name for module in _modules().values() for row in module.ROWS if row.hardly_misses}

    assert {name.partition("-")[0] for name in by_chance} == {
        "A01", "A02", "A03", "A05", "A11", "A17", "A18", "A19", "A20", "A22", "A24",
    }  # fmt: skip
