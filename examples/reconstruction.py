"""Many counts are the table: with enough of them, nearly exact, every secret follows by least squares."""

import math

import duckdb
import numpy as np

import hubbub
from hubbub.noise import bernoulli, discrete_laplace

PEOPLE, QUESTIONS, EPSILON = 150, 600, 0.25
sick = bernoulli(0.5, size=PEOPLE)
questions = bernoulli(0.5, size=PEOPLE * QUESTIONS).reshape(QUESTIONS, PEOPLE)


def reconstructed(answers: np.ndarray) -> np.ndarray:
    """Who is sick, by the least squares of all answers."""
    result, *_ = np.linalg.lstsq(questions.astype(float), answers, rcond=None)
    return result > 0.5


# Counts of random halves of the people, each a little off, as an interface that "adds some noise" would.
exact = questions @ sick.astype(int)
slightly = exact + discrete_laplace(1, size=QUESTIONS)
right = int((reconstructed(slightly) == sick).sum())
print(f"{QUESTIONS} counts, each off by about 1: {right} of {PEOPLE} people reconstructed")
assert right > 0.95 * PEOPLE

# The same counts from hubbub: a public table says who is in which question.
connection = duckdb.connect()
connection.execute("CREATE TABLE patients (patient INT, sick BOOLEAN)")
connection.executemany("INSERT INTO patients VALUES (?, ?)", list(enumerate(sick.tolist())))
places, people = np.nonzero(questions)
connection.register("pairs", {"question": places, "patient": people})
connection.execute("CREATE TABLE questions AS SELECT * FROM pairs")
data = hubbub.open(
    connection, table="patients", unit="patient", public={"questions": "questions"}, rows_per_unit=QUESTIONS
)
plan = data.sql(
    "SELECT question, COUNT(*) AS n FROM patients JOIN questions ON patients.patient = questions.patient "
    "WHERE sick GROUP BY question",
    epsilon=EPSILON,
    keys={"question": range(QUESTIONS)},
)
print("hubbub says beforehand how far each of them will be off:")
print(str(plan).splitlines()[1])
right = int((reconstructed(np.array(plan.run().value["n"])) == sick).sum())
print(f"{QUESTIONS} counts, ε = {EPSILON} for all of them: {right} of {PEOPLE} people guessed")

# With ε for everything, no method guesses a person better than e^ε/(1 + e^ε); the rest is luck.
best, luck = 1 / (1 + math.exp(-EPSILON)), math.sqrt(math.log(1e9) / (2 * PEOPLE))
print(f"No method gets more than {best:.1%} in the long run, or {best + luck:.1%} once in a billion runs")
assert right / PEOPLE < best + luck
