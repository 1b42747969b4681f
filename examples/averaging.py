"""Fresh noise wears off: the average of many answers is exact, unless each of them is charged."""

import duckdb
import numpy as np

import hubbub
from hubbub.errors import BudgetExceeded
from hubbub.noise import discrete_laplace, uniform

connection = duckdb.connect()
connection.execute("CREATE TABLE patients (patient INT, sick BOOLEAN)")
connection.executemany("INSERT INTO patients VALUES (?, ?)", [(i, uniform(2) == 1) for i in range(1000)])
exact = connection.execute("SELECT COUNT(*) FROM patients WHERE sick").fetchall()[0][0]

# An interface that adds Laplace noise of scale 10, well enough for one answer, as often as it is asked.
answers = exact + discrete_laplace(10, size=100_000)
print(f"One answer: {answers[0]}. The average of {answers.size:,}: {np.mean(answers):.2f}. Exactly: {exact}")
assert round(float(np.mean(answers))) == exact  # off by ½ would be eleven standard deviations

# hubbub adds the same noise, and charges each answer to one budget.
data = hubbub.open(connection, table="patients", unit="patient", rows_per_unit=1, budget=hubbub.Budget(1))
got = []
for _ in range(100_000):
    try:
        got.append(data.sql("SELECT COUNT(*) AS n FROM patients WHERE sick", epsilon=0.1).run().value["n"][0])
    except BudgetExceeded as refused:
        print("Refused:", refused.what)
        break
print(f"hubbub gave {len(got)} answers with ε = 0.1 each: {', '.join(f'{n:.0f}' for n in got)}")
print(f"Their average: {np.mean(got):.1f}; whoever asks ten times as often gets ten answers, too")
assert len(got) == 10
assert data.account.spent().epsilon == 1
print(f"Together they cost as much as one answer of ε = 1: spent ε = {data.account.epsilon():g}")
