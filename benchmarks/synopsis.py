"""Synopses: the error of all small tables of national2019, planned and measured, and what they take.

    .venv-bench/bin/python benchmarks/synopsis.py            # tables of one and of two columns
    .venv-bench/bin/python benchmarks/synopsis.py --ways 3   # and of three

Columns and bins are declared from the data dictionary. "Equal split" measures every table by itself with
the same share of the budget. Coverage is that of 95 % intervals of all cells. Processor times are of one run.
"""

import argparse
import math
import time

import numpy as np
from synthesis_schemas import acs_domain, acs_values

from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.declarations import with_public_bins
from hubbub.synthesis.measured_tables import MeasuredTables, normal_quantile
from hubbub.synthesis.release_budget import ReleaseBudget
from hubbub.synthesis.workload import OBJECTIVES, Workload, plan_noise


def run_one(counts, ways, objective, mu_squared):
    workload = Workload.all_up_to(counts.domain, ways)
    start = time.process_time()
    plan = plan_noise(workload, mu_squared=mu_squared, unit=counts.unit, objective=objective)
    planning_time = time.process_time() - start
    tables = counts.count_many(workload.residuals)
    start = time.process_time()
    residuals = {names: plan.noise(names).measure(tables[names]) for names in workload.residuals}
    measured = MeasuredTables(counts.domain, residuals)
    estimates = {names: measured.estimate(names) for names in workload.tables}
    duration = time.process_time() - start
    cells = covered = 0
    squares = scaled = 0.0
    for names, estimate in estimates.items():
        error, sd = estimate - counts.count(names), measured.standard_deviation(names)
        cells += error.size
        squares += float((error**2).sum())
        scaled += float(((error / sd) ** 2).sum())
        covered += int((np.abs(error) <= normal_quantile(0.95) * sd).sum())
    split = math.sqrt(len(workload.tables) / float(mu_squared))
    print(
        f"≤ {ways}-way, {objective}: {len(estimates)} tables, {cells} cells; equal split {split:.1f}; "
        f"planned rmse {plan.root_mean_square:.1f}, measured {math.sqrt(squares / cells):.1f}, "
        f"worst table {max(plan.errors.values()):.1f}; mean z² {scaled / cells:.3f}, "
        f"coverage {covered / cells:.4f}; plan {1000 * planning_time:.0f} ms, measure {duration:.2f} s"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    domain = with_public_bins(acs_domain(declared=False))
    counts = InMemoryCounts.of(domain, acs_values(domain))
    budget = ReleaseBudget.of(epsilon=options.epsilon, delta=1e-6)
    print(
        f"{len(domain.columns)} columns, {sum(column.size for column in domain.columns)} cells of one column"
    )
    for ways in range(1, options.ways + 1):
        for objective in OBJECTIVES:
            run_one(counts, ways, objective, budget.mu_squared)


if __name__ == "__main__":
    main()
