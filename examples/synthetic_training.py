"""Train on synthetic rows, test on real ones (TSTR): a pipeline of scikit-learn learns from made-up people.

The table is UCI Adult, where its files are in HUBBUB_DATA/tabular, and otherwise one that is made up here.
Beside it: the same pipeline on the real rows, without any protection, and a private logistic regression that
is trained on the real rows at the same price. All are tested on real rows that none of them has seen.

    python examples/synthetic_training.py
"""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hubbub as hb
from hubbub.estimators import LogisticRegression as PrivateLogisticRegression

EPSILON, DELTA = 1, 1e-6
# Public: categories and bounds are those of the census form, not of the rows.
KEYS = {
    "workclass": "Private,Self-emp-not-inc,Self-emp-inc,Federal-gov,Local-gov,State-gov,Without-pay,"
    "Never-worked,?",
    "marital": "Married-civ-spouse,Divorced,Never-married,Separated,Widowed,Married-spouse-absent,"
    "Married-AF-spouse",
    "occupation": "Tech-support,Craft-repair,Other-service,Sales,Exec-managerial,Prof-specialty,"
    "Handlers-cleaners,Machine-op-inspct,Adm-clerical,Farming-fishing,Transport-moving,Priv-house-serv,"
    "Protective-serv,Armed-Forces,?",
    "relationship": "Wife,Own-child,Husband,Not-in-family,Other-relative,Unmarried",
    "sex": "Female,Male",
    "income": ">50K,<=50K",
}
KEYS = {name: texts.split(",") for name, texts in KEYS.items()}
BOUNDS = {"age": (17, 90), "education": (1, 16), "hours": (1, 99)}
PLACES = {
    "age": 0, "workclass": 1, "education": 4, "marital": 5, "occupation": 6, "relationship": 7, "sex": 9,
    "hours": 12, "income": 14,
}  # fmt: skip


def read_adult(path: Path) -> pd.DataFrame:
    """The rows of one of Adult's files."""
    with gzip.open(path, "rt") as file:
        rows = [line.strip().rstrip(".").split(", ") for line in file if line.count(",") == 14]
    frame = pd.DataFrame({name: [row[place] for row in rows] for name, place in PLACES.items()})
    return frame.astype(dict.fromkeys(BOUNDS, float))


def make_up(rows: int, seed: int) -> pd.DataFrame:
    """A table of the same columns that nobody is in."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({name: random.choice(values, rows) for name, values in KEYS.items()})
    for name, (low, high) in BOUNDS.items():
        frame[name] = random.integers(low, high + 1, rows).astype(float)
    score = 0.25 * (frame.education - 9) + 0.02 * (frame.age - 45) + (frame.marital == "Married-civ-spouse")
    frame["income"] = np.where(score + random.logistic(size=rows) > 1, ">50K", "<=50K")
    return frame[list(PLACES)]


def read_tables() -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """A name, the rows to learn from, and those to test with."""
    folder = Path(os.environ.get("HUBBUB_DATA", Path(__file__).parents[2] / "shared" / "data")) / "tabular"
    if (folder / "adult.data.gz").exists():
        return "Adult", read_adult(folder / "adult.data.gz"), read_adult(folder / "adult.test.gz")
    return "made-up people", make_up(20_000, 1), make_up(10_000, 2)


def features() -> object:
    """Numbers scaled and categories one by one; the categories are the public ones."""
    names = [name for name in KEYS if name != "income"]
    encoder = OneHotEncoder(categories=[KEYS[name] for name in names])
    return make_column_transformer((encoder, names), (StandardScaler(), list(BOUNDS)), sparse_threshold=0.0)


def train_and_test(rows: pd.DataFrame, test: pd.DataFrame) -> float:
    """The area under the ROC curve of a pipeline that learns from these rows."""
    pipeline = make_pipeline(features(), LogisticRegression(max_iter=1000))
    pipeline.fit(rows.drop(columns="income"), rows["income"] == ">50K")
    return roc_auc_score(test["income"] == ">50K", pipeline.predict_proba(test.drop(columns="income"))[:, 1])


def scale(rows: pd.DataFrame) -> np.ndarray:
    """Features in public bounds, for the private regression: nothing is learned from the rows."""
    parts = [
        (rows[name].to_numpy()[:, None] == np.array(values)).astype(float)
        for name, values in KEYS.items()
        if name != "income"
    ]
    parts += [
        ((rows[name].to_numpy() - low) / (high - low) * 2 - 1)[:, None]
        for name, (low, high) in BOUNDS.items()
    ]
    return np.concatenate(parts, axis=1)


def main() -> None:
    """Print the three areas."""
    name, train, test = read_tables()
    with hb.open(train, table="people", unit=hb.Unit.row(), keys=KEYS, bounds=BOUNDS) as data:
        plan = data.plan_synthesis(
            epsilon=EPSILON, delta=DELTA, focus="income", steps=dict.fromkeys(BOUNDS, 1)
        )
        synthesis = plan.run().value
    synthetic = synthesis.synthetic().to_pandas()
    private = PrivateLogisticRegression(
        epsilon=EPSILON, delta=DELTA, bounds=(-1, 1), classes=[False, True], account=None
    ).fit(scale(train), (train["income"] == ">50K").to_numpy())
    private_auc = roc_auc_score(test["income"] == ">50K", private.predict_proba(scale(test))[:, 1])
    print(f"{name}: {len(train)} rows to learn from, {len(test)} to test with; ε = {EPSILON}, δ = {DELTA}")
    print("area under the ROC curve, on real rows that no model has seen:")
    print(f"trained on real rows, not protected: {train_and_test(train, test):.3f}")
    print(f"trained on synthetic rows:           {train_and_test(synthetic, test):.3f}")
    print(f"private logistic regression:         {private_auc:.3f}")


if __name__ == "__main__":
    main()
