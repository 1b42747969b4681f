"""Types as an editor sees them: checked by mypy, which reads this file together with the sources."""

from fractions import Fraction
from typing import Any, assert_type

import torch

import hubbub as hb
from hubbub.audit import TrainingAudit
from hubbub.ledger import LedgerAccount
from hubbub.mechanisms.selection import WinnerWithGap, WinnerWithScore
from hubbub.sql.composite_plan import CompositePlan
from hubbub.sql.plan import Plan
from hubbub.sql.result import Result
from hubbub.sql.streaming import Stream

# Mechanisms

laplace = hb.Laplace.of(sensitivity=1, epsilon=0.5)
select = hb.PermuteAndFlip.of(sensitivity=1, epsilon=0.5)

assert_type(laplace, hb.Laplace)
assert_type(laplace.release(42), hb.Release[float])
assert_type(laplace.release(42).map(str), hb.Release[str])
assert_type(laplace.release(42).map(str).value.upper(), str)
assert_type(hb.Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6).release(42).value, float)
assert_type(select.release([3, 1, 2]).value, int)
assert_type(hb.TopK(select, 2).release([3, 1, 2]).value, list[int])
assert_type(hb.ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1).release([3, 1]).value, WinnerWithGap)
assert_type(hb.select_and_measure([3, 1, 2], select, laplace).value, WinnerWithScore)

# Accounting

loss = hb.PrivacyLoss.gaussian(1).poisson_subsampled(0.01) * 1000
budget = hb.Budget(1, 1e-6)

assert_type(loss, hb.PrivacyLoss)
assert_type(loss.epsilon(1e-6), float)
assert_type(budget.epsilon, Fraction)
assert_type(hb.Ledger.open("visits.ledger").account("visits"), LedgerAccount)

# Queries

data = hb.open("visits.csv", unit="patient", budget=budget)
plan = data.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)

assert_type(data, hb.Dataset)
assert_type(plan, Plan | CompositePlan)
assert_type(data.run(plan), hb.Release[Result])
assert_type(plan.run().value, Result)
assert_type(plan.run().value.to_dict(), dict[str, list[Any]])
assert_type(data.stream(plan).value, Stream)

# Training, estimators and audits

model = torch.nn.Linear(2, 2)
trainer = hb.training.make_private(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    (torch.zeros(10, 2), torch.zeros(10)),
    loss=torch.nn.functional.cross_entropy,
    budget=budget,
    sampling_rate=0.1,
    steps=10,
    clipping_norm=1,
    account=hb.InMemoryAccount(budget),
)

assert_type(trainer, hb.training.Trainer)
assert_type(trainer.run().value, dict[str, torch.Tensor])
assert_type(hb.audit.audit_training(trainer), TrainingAudit)
classifier = hb.estimators.LogisticRegression(epsilon=1, bounds=(0, 1), classes=[0, 1], account=None)
assert_type(classifier.fit([[0.5]], [1]), hb.estimators.LogisticRegression)
