"""PipelineDP's answers to `accuracy.py` on people with several rows; runs in its own environment."""

import json
import logging
import sys

import numpy as np
import pipeline_dp

logging.disable(logging.CRITICAL)


def main() -> None:
    question = json.loads(sys.stdin.read())
    stored = np.load(question["path"])
    rows = list(zip(stored["who"].tolist(), stored["group"].tolist(), strict=True))
    public = list(range(question["groups"]))
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda _: 0,
    )
    if question["users"]:
        bounds = {
            "max_partitions_contributed": question["groups_limit"],
            "max_contributions_per_partition": 1,
        }
        metric = pipeline_dp.Metrics.PRIVACY_ID_COUNT
    else:
        bounds, metric = {"max_contributions": question["limit"]}, pipeline_dp.Metrics.COUNT
    answers = {}
    for epsilon in question["epsilons"]:
        seen = []
        for _ in range(question["repetitions"]):
            accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=1e-12)
            engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
            params = pipeline_dp.AggregateParams(
                noise_kind=pipeline_dp.NoiseKind.LAPLACE, metrics=[metric], **bounds
            )
            result = engine.aggregate(rows, params, extractors, public_partitions=public)
            accountant.compute_budgets()
            counts = {key: value[0] for key, value in result}
            seen.append([float(counts[key]) for key in public])
        answers[str(epsilon)] = seen
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
