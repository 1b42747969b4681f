"""Without names is not anonymous: a table without them, beside a list of voters, names people again."""

from collections import Counter

import duckdb

import hubbub
from hubbub.noise import uniform

# Everybody made up: a year of birth, a district, a sex, and a diagnosis that is nobody's business.
people = [
    (i, 1940 + uniform(60), uniform(100), "fm"[uniform(2)], ["flu", "HIV"][uniform(2)]) for i in range(2000)
]
voters = {(born, district, sex): f"Voter {i}" for i, born, district, sex, _ in people}

# The "anonymised" release leaves out the name. Whoever is alone with her three facts has one all the same.
released = [(born, district, sex, diagnosis) for _, born, district, sex, diagnosis in people]
alone = Counter(row[:3] for row in released)
reidentified = [(voters[row[:3]], row[3]) for row in released if alone[row[:3]] == 1]
print(
    f"Without names: {len(released)} rows. Named again by a list of voters: "
    f"{len(reidentified)}, such as {reidentified[0]}"
)
assert len(reidentified) > 1000  # 1,690 are expected; fewer than 1,000 once in 10^60 runs

# The same question to hubbub: who has which three facts, and what do they suffer from?
connection = duckdb.connect()
connection.execute(
    "CREATE TABLE patients (patient INT, born INT, district INT, sex VARCHAR, diagnosis VARCHAR)"
)
connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?)", people)
data = hubbub.open(connection, table="patients", unit="patient", rows_per_unit=1)
facts = "born, district, sex, diagnosis"
plan = data.sql(f"SELECT {facts}, COUNT(*) AS n FROM patients GROUP BY {facts}", epsilon=1, delta=1e-15)
answers = plan.run().value
groups = set(zip(*(answers[name] for name in ("born", "district", "sex")), strict=True))
singled_out = [voters[facts] for facts in voters if facts in groups and alone[facts] == 1]
print(
    f"From hubbub, ε = 1: {len(answers)} groups are shown, "
    f"and of those who are alone {len(singled_out)} are named"
)
assert not singled_out  # each is shown with a chance of 1e-15 at most, all of them 2e-12

for text in ("SELECT * FROM patients", "SELECT patient, COUNT(*) FROM patients GROUP BY patient"):
    try:
        data.sql(text, epsilon=1)
        raise SystemExit("it was not refused")
    except hubbub.HubbubError as refused:
        print("Refused:", refused.what)
large = data.sql(
    "SELECT sex, COUNT(*) AS n FROM patients GROUP BY sex", epsilon=0.5, keys={"sex": ["f", "m"]}
)
print("What is true of many is still told:", large.run().value.to_dict()["n"])
