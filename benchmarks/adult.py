"""UCI Adult as features in public bounds: one column for each category that its description lists.

Nothing is taken from the rows: categories and bounds are those of the census form. Gains and losses
have wide bounds and are taken as logarithms.
"""

import gzip
import os
from pathlib import Path

import numpy as np

__all__ = ["BOUNDS", "NORM", "adult", "where"]

CATEGORIES = {
    1: "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    3: "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters "
    "1st-4th 10th Doctorate 5th-6th Preschool",
    5: "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    6: "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
    "Armed-Forces",
    7: "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    8: "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    9: "Female Male",
}
NUMBERS = {0: (17, 90), 4: (1, 16), 10: (0, 99_999), 11: (0, 4_356), 12: (1, 99)}
LOGARITHMS = {10, 11}
COLUMNS = sum(len(names.split()) for names in CATEGORIES.values())

BOUNDS = (
    np.array([0.0] * COLUMNS + [0.0 if column in LOGARITHMS else -1.0 for column in NUMBERS]),
    np.ones(COLUMNS + len(NUMBERS)),
)
NORM = (len(CATEGORIES) + len(NUMBERS)) ** 0.5
"""The largest ℓ2 norm that a row can have."""


def where() -> Path | None:
    """The folder of the two files, if it is there."""
    text_values = os.environ.get("HUBBUB_DATA", Path(__file__).parents[2] / "shared" / "data")
    folder = Path(text_values) / "tabular"
    return folder if (folder / "adult.data.gz").exists() else None


def adult(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rows and labels to learn from, and those to test with."""
    return (*_read(folder / "adult.data.gz"), *_read(folder / "adult.test.gz"))


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(path, "rt") as file:
        rows = [line.strip().rstrip(".").split(", ") for line in file if line.count(",") == 14]
    columns = []
    for column, names in CATEGORIES.items():
        text_values = np.array([row[column] for row in rows])
        columns.append((text_values[:, None] == np.array(names.split())).astype(float))
    for column, (low, high) in NUMBERS.items():
        text_values = np.array([[float(row[column])] for row in rows])
        if column in LOGARITHMS:
            columns.append(np.log1p(text_values) / np.log1p(high))
        else:
            columns.append((text_values - (low + high) / 2) / ((high - low) / 2))
    return np.hstack(columns), np.array([int(row[14] == ">50K") for row in rows])
