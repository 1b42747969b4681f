"""Declarations of the benchmarks' tables, from their data dictionaries but for the densities of areas."""

import csv
import gzip
import json
from fractions import Fraction
from pathlib import Path

import numpy as np

from hubbub.synthesis.domain import Column, Condition, Domain, Function, Rule

SHARED = Path(__file__).resolve().parents[2] / "shared"
DATA = SHARED / "data"
TEN = ["AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET", "DEYE"]
INDUSTRIES = (
    # The Census Bureau's industry codes: the last code of each category of the dictionary.
    (290, 0), (490, 1), (690, 2), (770, 3), (3990, 4), (4590, 5), (5790, 6), (6390, 7), (6780, 8), (7190, 9),
    (7790, 10), (7890, 11), (8290, 12), (8470, 13), (8690, 14), (9290, 15), (9590, 16), (9870, 17),
    (9920, 18),
)  # fmt: skip
DENSITIES = {
    # Inhabitants per square mile, one number for everybody in an area. The dictionary does not list them:
    # these were read off the table, so the benchmark also runs without them.
    "01-01301": "2731.2", "06-07502": "33632.6", "06-08507": "3305.1", "08-00803": "3393.2",
    "13-04600": "3670.4", "17-03529": "15097.5", "17-03531": "11171.6", "19-01700": "3572.3",
    "24-01004": "4187.9", "26-02702": "4817.2", "28-01100": "2674.3", "29-01901": "5434.8",
    "30-00600": "16.3", "32-00405": "7990.5", "36-03710": "52864.7", "36-04010": "50441.6",
    "38-00100": "73.0", "40-00200": "90.7", "51-01301": "11162.8", "51-51255": "11224.3",
}  # fmt: skip


def industry_of(code):
    """The category of an industry code."""
    return next(category for last, category in INDUSTRIES if int(code) <= last)


def numbers(name, low, high, *, unit=1, nullable=False):
    return Column.of_numbers(name, (Fraction(str(low)), Fraction(str(high))), unit=unit, is_nullable=nullable)


def acs_columns():
    schema = json.loads((DATA / "acs/national2019.json").read_text())["schema"]
    dictionary = json.loads((DATA / "acs/data_dictionary.json").read_text())
    columns = []
    for name, facts in schema.items():
        values = dictionary[name].get("values", {})
        is_range = "min" in values
        if name in {"NOC", "NPF"}:
            first, last = values["min"], values["max"]
            categories = [key for key in values if key not in {"min", "max"}]
            columns.append(Column.of_categories(name, [*categories, *map(str, range(first, last + 1))]))
        elif is_range:
            high = max([values["max"], *(int(key) for key in values if key.isdigit())])
            low = min([values["min"], *(int(key) for key in values if key.isdigit())])
            unit = None if name == "DENSITY" else 1
            columns.append(numbers(name, low, high, unit=unit, nullable="N" in values))
        elif name == "INDP":
            columns.append(Column.of_categories(name, list(map(str, facts["values"]))))
        else:
            columns.append(Column.of_categories(name, list(map(str, facts["values"]))))
    return columns


def ages(low=None, high=None):
    return Condition(
        "AGEP",
        low=None if low is None else Fraction(low),
        high=None if high is None else Fraction(high),
        is_range=True,
    )


def some(column, *categories):
    return Condition(column, categories=frozenset(categories))


def null(column):
    return Condition(column, with_null=True)


def not_null(column):
    return Condition(column, is_range=True)


def others(columns, name, *categories):
    return some(name, *(set(columns[name].categories) - set(categories)))


def acs_rules(columns):
    """What the dictionary says about N/A and group quarters."""
    impossible = []
    for name, age in (("MSP", 15), ("PINCP_DECILE", 15), ("EDU", 3), ("DREM", 5), ("DPHY", 5)):
        impossible += [(ages(high=age), others(columns, name, "N")), (ages(low=age), some(name, "N"))]
    impossible += [(ages(high=15), not_null("PINCP")), (ages(low=15), null("PINCP"))]
    impossible += [(ages(high=16), others(columns, "INDP_CAT", "N"))]
    quarters = some("HOUSING_TYPE", "2", "3")
    for name, code in (("OWN_RENT", "0"), ("NOC", "N"), ("NPF", "N")):
        impossible.append((quarters, others(columns, name, code)))
    impossible.append((some("HOUSING_TYPE", "1"), some("OWN_RENT", "0")))
    impossible.append((some("HOUSING_TYPE", "1"), some("NOC", "N")))
    weight = Condition("WGTP", low=Fraction(1), is_range=True)
    impossible += [
        (quarters, weight),
        (some("HOUSING_TYPE", "1"), Condition("WGTP", high=Fraction(1), is_range=True)),
    ]
    return tuple(Rule(conditions) for conditions in impossible)


def acs_domain(*, declared, names=None, densities=True):
    """National2019: with focus, functions and rules, or with categories and bounds alone."""
    columns = {column.name: column for column in acs_columns()}
    if names:
        columns = {name: columns[name] for name in columns if name in names}
    if not declared:
        return Domain(tuple(columns.values()))
    codes, categories = columns["INDP"].categories, columns["INDP_CAT"].categories
    table = tuple(categories.index("N" if code == "N" else str(industry_of(code))) for code in codes)
    functions = [Function("INDP_CAT", "INDP", table)]
    if densities:
        columns["DENSITY"] = Column.of_categories("DENSITY", sorted(DENSITIES.values()))
        values = columns["DENSITY"].categories
        areas = columns["PUMA"].categories
        functions.append(Function("DENSITY", "PUMA", tuple(values.index(DENSITIES[area]) for area in areas)))
    return Domain(tuple(columns.values()), tuple(functions), acs_rules(columns), "PUMA")


def acs_values(domain):
    """The rows, as text; N as NULL where the column is a range of numbers."""
    with gzip.open(DATA / "acs/national2019.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    values = {}
    for column in domain.columns:
        texts = [row[column.name] for row in rows]
        values[column.name] = (
            np.array([np.nan if text == "N" else float(text) for text in texts])
            if column.is_binned
            else texts
        )
    return values


def write_acs(generated, path):
    """Write synthetic rows as the judge reads them."""
    names = list(generated)
    columns = [["N" if value is None else value for value in generated[name].tolist()] for name in names]
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))


ADULT = {
    "age": (17, 90, 1),
    "workclass": "Private,Self-emp-not-inc,Self-emp-inc,Federal-gov,Local-gov,State-gov,Without-pay,"
    "Never-worked,?",
    "fnlwgt": (0, 2_000_000, 1),
    "education": "Bachelors,Some-college,11th,HS-grad,Prof-school,Assoc-acdm,Assoc-voc,9th,7th-8th,12th,"
    "Masters,1st-4th,10th,Doctorate,5th-6th,Preschool",
    "education-num": ",".join(map(str, range(1, 17))),
    "marital-status": "Married-civ-spouse,Divorced,Never-married,Separated,Widowed,Married-spouse-absent,"
    "Married-AF-spouse",
    "occupation": "Tech-support,Craft-repair,Other-service,Sales,Exec-managerial,Prof-specialty,"
    "Handlers-cleaners,Machine-op-inspct,Adm-clerical,Farming-fishing,Transport-moving,Priv-house-serv,"
    "Protective-serv,Armed-Forces,?",
    "relationship": "Wife,Own-child,Husband,Not-in-family,Other-relative,Unmarried",
    "race": "White,Asian-Pac-Islander,Amer-Indian-Eskimo,Other,Black",
    "sex": "Female,Male",
    "capital-gain": (0, 99_999, 1),
    "capital-loss": (0, 10_000, 1),
    "hours-per-week": (1, 99, 1),
    "native-country": "United-States,Cambodia,England,Puerto-Rico,Canada,Germany,Outlying-US(Guam-USVI-etc),"
    "India,Japan,Greece,South,China,Cuba,Iran,Honduras,Philippines,Italy,Poland,Jamaica,Vietnam,Mexico,Portugal,"
    "Ireland,France,Dominican-Republic,Laos,Ecuador,Taiwan,Haiti,Columbia,Hungary,Guatemala,Nicaragua,"
    "Scotland,Thailand,"
    "Yugoslavia,El-Salvador,Trinadad&Tobago,Peru,Hong,Holand-Netherlands,?",
    "income": ">50K,<=50K",
}
MILITARY = {
    "grade": "enlisted,officer,warrant officer",
    "branch": "air force,army,marine corps,navy",
    "gender": "female,male",
    "race": "ami/aln,asian,black,multi,p/i,unk,white",
    "hisp": "True,False",
    "rank": ",".join(map(str, range(1, 12))),
}
TAXIS = {
    "passengers": ",".join(map(str, range(10))),
    "distance": (0, 100, None),
    "fare": (0, 300, None),
    "tip": (0, 100, None),
    "tolls": (0, 100, None),
    "total": (0, 500, None),
    "color": "yellow,green",
    "payment": "credit card,cash,",
    "pickup_borough": "Bronx,Brooklyn,Manhattan,Queens,Staten Island,",
    "dropoff_borough": "Bronx,Brooklyn,Manhattan,Queens,Staten Island,",
}
_CONDITIONS = (
    "asthma bronch tb hf hbp pepticulcer colitis hepatitis chroniccough hayfever diabetes polio tumor "
    "nervousbreak alcoholpy pica headache otherpain weakheart allergies nerves lackpep hbpmed boweltrouble "
    "wtloss infection"
)
NHEFS = {
    **dict.fromkeys(["qsmk", "death", "sex", "race"], "0,1"),
    "marital": "1,2,3,4,5,6,7,8",
    "education": "1,2,3,4,5",
    "active": "0,1,2",
    "exercise": "0,1,2",
    "alcoholfreq": "0,1,2,3,4,5",
    **dict.fromkeys(_CONDITIONS.split(), "0,1,2"),
    "age": (25, 75, 1),
    "school": (0, 17, 1),
    "smokeintensity": (0, 80, 1),
    "smokeyrs": (0, 70, 1),
    "wt71": (30, 200, None),
    "ht": (130, 210, None),
}


def simple_domain(declared):
    """A domain of categories, listed in a text, and of numbers with bounds and a unit."""
    columns = [
        Column.of_categories(name, facts.split(","))
        if isinstance(facts, str)
        else numbers(name, facts[0], facts[1], unit=facts[2])
        for name, facts in declared.items()
    ]
    return Domain(tuple(columns))


def _read(path, names=None):
    packed = path.read_bytes()
    text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
    lines = [line for line in text.splitlines() if line.strip()]
    if names:
        return list(csv.DictReader(lines, names, skipinitialspace=True))
    return list(csv.DictReader(lines))


EDUCATION = (
    # education-num is the rank of education, from preschool to doctorate.
    "Preschool,1st-4th,5th-6th,7th-8th,9th,10th,11th,12th,HS-grad,Some-college,Assoc-voc,Assoc-acdm,Bachelors,"
    "Masters,Prof-school,Doctorate"
)


def simple_table(name):
    """A domain and its values."""
    if name == "adult, function declared":
        domain, values = simple_table("adult")
        ranks = EDUCATION.split(",")
        table = tuple(ranks.index(each) for each in domain.column("education").categories)
        return Domain(domain.columns, (Function("education-num", "education", table),)), values
    declared, path, names = {
        "adult": (ADULT, "adult.data.gz", list(ADULT)),
        "military": (MILITARY, "military.csv.gz", None),
        "taxis": (TAXIS, "taxis.csv", None),
        "nhefs": (NHEFS, "nhefs.csv", None),
    }[name]
    domain = simple_domain(declared)
    rows = _read(DATA / "tabular" / path, names)
    values = {}
    for column in domain.columns:
        texts = [row[column.name] for row in rows]
        values[column.name] = (
            np.array([float(text) if text else np.nan for text in texts]) if column.is_binned else texts
        )
    return domain, values


def generated_table(columns, rows, seed=1):
    """A chain of dependent columns of 2 to 12 categories."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 13, columns)
    domain = Domain(tuple(Column.of_categories(f"c{i}", range(size)) for i, size in enumerate(sizes)))
    cells = {}
    before = np.zeros(rows, dtype=np.int64)
    for column, size in zip(domain.columns, sizes, strict=True):
        fresh = random.integers(0, size, rows)
        before = np.where(random.random(rows) < 0.6, before % size, fresh)
        cells[column.name] = before
    return domain, cells
