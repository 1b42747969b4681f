"""The pictures of the textbook's chapters; `website/pictures.py` writes them."""

import math

import hubbub as hb
from hubbub.report.charts import Axis, Frame, draw_loss_distribution

__all__ = ["draw_textbook"]


def draw_textbook() -> dict[str, str]:
    """All pictures of the chapters, by their file names."""
    return {
        "alone.svg": draw_people_alone(),
        "databases.svg": draw_databases(),
        "local-and-central.svg": draw_local_and_central(),
        "laplace-sliding.svg": draw_sliding_laws(),
        "error-against-epsilon.svg": draw_errors(),
        "bounding.svg": draw_bounding(),
        "noisy-max.svg": draw_wrong_winners(),
        "auction.svg": draw_auction(),
        "above-threshold.svg": draw_alarms(),
        "loss-distribution.svg": draw_loss_distribution(hb.PrivacyLoss.gaussian(1)),
        "privacy-curve.svg": draw_curves(),
        "group-curves.svg": draw_group_curves(),
        "laplace-and-gaussian.svg": draw_laplace_and_gaussian(),
        "audited-laws.svg": draw_audited_laws(),
    }


def draw_people_alone(people: int = 2000) -> str:
    """The share of people whose combination of known facts nobody shares."""
    frame = Frame(
        "Few facts make one unique",
        f"share of {people:,} people whose combination of facts nobody else has",
        across=Axis("combinations that are possible, all equally likely", 2, 6, logarithmic=True),
        up=Axis("share alone", 0, 1),
    )

    def share(combinations: float) -> float:
        return (1 - 1 / combinations) ** (people - 1)

    grid = [10 ** (2 + step / 25) for step in range(101)]
    return frame.render(
        frame.line([(each, share(each)) for each in grid], "main"),
        frame.dot(12_000, share(12_000)),
        frame.text(12_000, share(12_000), "year, district and sex: 12,000", dx=-10, dy=-8, anchor="end"),
        frame.dot(120, share(120)),
        frame.text(120, share(120), "year and sex: 120", dx=4, dy=-14),
    )


def draw_databases(most: int = 4) -> str:
    """All databases of at most a few rows, with lines between neighbours."""
    frame = Frame(
        "Databases as histograms",
        f"all databases of at most {most} answers; lines join those that differ by one row",
        across=Axis("rows that say yes", -0.5, most + 0.5),
        up=Axis("rows that say no", -0.5, most + 0.5),
    )
    places = [(x, y) for x in range(most + 1) for y in range(most + 1 - x)]
    lines = [frame.line([place, (place[0] + 1, place[1])], "main") for place in places if sum(place) < most]
    lines += [frame.line([place, (place[0], place[1] + 1)], "main") for place in places if sum(place) < most]
    substitution = frame.line([(2, 1), (1, 2)], "mark")
    return frame.render(
        *lines,
        substitution,
        *(frame.dot(x, y) for x, y in places),
        frame.text(2, 2, "dashed: one row substituted,", dx=24, dy=-12),
        frame.text(2, 2, "at distance 2", dx=24, dy=6),
    )


def draw_local_and_central() -> str:
    """The error of a count by randomized response and by a curator, against the number of people."""
    coin = hb.RandomizedResponse.coin()
    central = hb.Laplace.of(sensitivity=1, epsilon=coin.loss().epsilon()).error(0.95)
    frame = Frame(
        "The price of not trusting anybody",
        "error of a count that is not exceeded with 95 % confidence, ε = ln 3",
        across=Axis("people", 2, 6, logarithmic=True),
        up=Axis("error", 0, 4, logarithmic=True),
    )
    sizes = [round(10 ** (2 + step / 8)) for step in range(33)]
    return frame.render(
        frame.line([(n, coin.estimate_error(n)) for n in sizes], "main"),
        frame.line([(n, float(central)) for n in sizes], "mark"),
        frame.text(
            10_000, coin.estimate_error(10_000), "local: each tosses coins", dx=-10, dy=-8, anchor="end"
        ),
        frame.text(10_000, float(central), "central: a curator adds noise once", dy=-10, anchor="middle"),
    )


def draw_sliding_laws(epsilon: float = 0.5) -> str:
    """Two Laplace laws, one unit apart."""

    def density(z: float) -> float:
        return epsilon / 2 * math.exp(-epsilon * abs(z))

    grid = [step / 20 for step in range(-120, 161)]
    frame = Frame(
        "The sliding property",
        f"Laplace noise on a count of 0 and of 1, ε = {epsilon}: the ratio is never above e^ε",
        across=Axis("noisy count", -6, 8),
        up=Axis("density", 0, 0.3),
    )
    return frame.render(
        frame.line([(z, density(z)) for z in grid], "main"),
        frame.line([(z, density(z - 1)) for z in grid], "mark"),
        frame.text(-0.2, density(0), "count 0", dx=-6, dy=-6, anchor="end"),
        frame.text(1.2, density(0), "count 1", dx=6, dy=-6),
        frame.text(7.8, 0.16, f"e^ε = {math.exp(epsilon):.2f} on each side", anchor="end"),
    )


def draw_errors() -> str:
    """The error of a count against ε, exact and as the textbook has it."""
    epsilons = [step / 20 for step in range(2, 61)]
    frame = Frame(
        "What an error costs",
        "the error of a count that is not exceeded with 95 % confidence",
        across=Axis("ε", 0, 3),
        up=Axis("error", 0, 30),
    )
    exact = [(e, hb.Laplace.of(sensitivity=1, epsilon=e).error(0.95)) for e in epsilons]
    return frame.render(
        frame.line([(e, math.log(20) / e) for e in epsilons], "pale"),
        frame.line(exact, "main"),
        frame.text(1.75, 2, "exact, on integers", dx=4, dy=-16),
        frame.text(0.4, math.log(20) / 0.4, "ln(20)/ε, by Fact 3.7", dx=12, dy=-4),
    )


def draw_bounding() -> str:
    """The error of a sum against the upper bound of its values: bias falls, noise grows."""
    # 1,000 made-up incomes, lognormal by their quantiles, in thousands.
    incomes = [math.exp(3.4 + 0.6 * _normal_quantile((place + 0.5) / 1000)) for place in range(1000)]
    bounds = [5 * step for step in range(2, 61)]
    bias = [sum(max(income - bound, 0) for income in incomes) / 1000 for bound in bounds]
    noise = [bound / 0.02 / 1000 for bound in bounds]
    frame = Frame(
        "Bounds trade bias for noise",
        "error of a sum of 1,000 incomes at ε = 0.02, in millions",
        across=Axis("upper bound of an income, in thousands", 0, 300),
        up=Axis("error", 0, 20),
    )
    whole = [(bound, cut + spread) for bound, cut, spread in zip(bounds, bias, noise, strict=True)]
    best = min(whole, key=lambda point: point[1])
    return frame.render(
        frame.line(zip(bounds, bias, strict=True), "pale"),
        frame.line(zip(bounds, noise, strict=True), "mark"),
        frame.line(whole, "main"),
        frame.dot(*best),
        frame.text(*best, "best", dx=0, dy=-12, anchor="middle"),
        frame.text(120, 0.6, "cut off (bias)", dx=4, dy=-8),
        frame.text(30, noise[4], "noise", dx=-4, dy=-10, anchor="end"),
        frame.text(40, 9.2, "both", dx=14),
    )


def draw_wrong_winners() -> str:
    """How often report noisy max names the smaller of two counts, against the gap between them."""
    frame = Frame(
        "How often the smaller of two counts wins",
        "report noisy max on two counts, ties by a coin",
        across=Axis("gap between the counts", 0, 20),
        up=Axis("probability", 0, 0.5),
    )
    parts = []
    for epsilon, kind in ((0.5, "main"), (1.0, "mark")):
        law = _laplace_law(epsilon, 150)
        # The difference of two independent draws.
        difference = {
            d: math.fsum(law[k] * law[k + d] for k in law if k + d in law) for d in range(-100, 101)
        }
        points = [
            (float(gap), math.fsum(p for d, p in difference.items() if d > gap) + difference[gap] / 2)
            for gap in range(21)
        ]
        parts.append(frame.line(points, kind))
        parts.append(frame.text(*points[4], f"ε = {epsilon:g}", dx=8, dy=-6))
    return frame.render(*parts)


def draw_auction() -> str:
    """The revenue of each price, and how likely the exponential mechanism is to choose it."""
    bids = [100] * 300 + [301] * 100
    prices = range(1, 400)
    revenue = [price * sum(bid >= price for bid in bids) for price in prices]
    best = max(revenue)
    # One bidder moves the revenue at a price by that price: at most 399.
    weights = [math.exp((each - best) / (2 * 399)) for each in revenue]
    frame = Frame(
        "A price is chosen by its revenue",
        "300 bid 1.00 and 100 bid 3.01; the exponential mechanism at ε = 1",
        across=Axis("price", 0, 4),
        up=Axis("share of the largest", 0, 1.1),
    )
    at = [price / 100 for price in prices]
    return frame.render(
        frame.line(zip(at, (each / best for each in revenue), strict=True), "pale"),
        frame.line(zip(at, weights, strict=True), "main"),
        frame.text(2.2, 0.55, "revenue", dx=-6, dy=-8, anchor="end"),
        frame.text(1, 0.95, "chance of being chosen", dx=10),
    )


def draw_alarms() -> str:
    """The probability that one query is answered "above", against its distance to the threshold."""
    frame = Frame(
        "One comparison of AboveThreshold",
        "noise of scale 2/ε on the threshold and 4/ε on the query",
        across=Axis("query minus threshold", -40, 40),
        up=Axis("probability of “above”", 0, 1),
    )
    parts = []
    for epsilon, kind in ((1.0, "main"), (0.5, "mark")):
        threshold, query = _laplace_law(epsilon / 2, 200), _laplace_law(epsilon / 4, 400)
        above, total = {}, 0.0  # Pr[noise of the query ≥ k]
        for k in range(400, -401, -1):
            total += query[k]
            above[k] = total
        points = [
            (float(gap), math.fsum(p * above[max(-400, min(400, t - gap))] for t, p in threshold.items()))
            for gap in range(-40, 41)
        ]
        parts.append(frame.line(points, kind))
        parts.append(frame.text(*points[46 if epsilon > 0.5 else 58], f"ε = {epsilon:g}", dx=10, dy=14))
    return frame.render(*parts)


def draw_curves() -> str:
    """δ against ε, for one and for ten Gaussian mechanisms."""
    epsilons = [step / 10 for step in range(101)]
    frame = Frame(
        "One mechanism has a curve, not a pair",
        "δ(ε) of a Gaussian mechanism with μ = ½, and of ten of them",
        across=Axis("ε", 0, 10),
        up=Axis("δ", -10, 0, logarithmic=True),
    )
    parts = []
    for times, kind in ((1, "main"), (10, "mark")):
        loss = hb.PrivacyLoss.gaussian(0.5) * times
        points = [(e, loss.delta(e)) for e in epsilons]
        parts.append(frame.line([(e, delta) for e, delta in points if delta >= 1e-10], kind))
    return frame.render(
        *parts, frame.text(2.3, 1e-7, "one", dx=-14, anchor="end"), frame.text(6, 1e-3, "ten", dx=16)
    )


def draw_group_curves() -> str:
    """δ against ε for one person, a couple and a family of four."""
    epsilons = [step / 10 for step in range(101)]
    frame = Frame(
        "A group pays more",
        "δ(ε) of a Gaussian mechanism with μ = ½, for groups of one, two and four",
        across=Axis("ε", 0, 10),
        up=Axis("δ", -10, 0, logarithmic=True),
    )
    parts = []
    for size, kind in ((1, "main"), (2, "mark"), (4, "pale")):
        loss = hb.PrivacyLoss.gaussian(0.5).for_group(size)
        points = [(e, delta) for e in epsilons if (delta := loss.delta(e)) >= 1e-10]
        parts.append(frame.line(points, kind))
        parts.append(frame.text(*points[len(points) // 2], f"{size}", dx=10, dy=-4))
    return frame.render(*parts)


def draw_laplace_and_gaussian() -> str:
    """The error of both kinds of noise against the number of coordinates that one person moves."""
    frame = Frame(
        "Laplace or Gaussian",
        "error of one coordinate with 95 % confidence, if a person moves k of them by 1 each",
        across=Axis("k, coordinates that one person moves", 0, 30),
        up=Axis("error", 0, 90),
    )
    counts = range(1, 31)
    sensitivities = {k: hb.Sensitivity(k, linf=1) for k in counts}
    laplace = [(k, float(hb.Laplace.of(sensitivity=sensitivities[k], epsilon=1).error(0.95))) for k in counts]
    parts = [
        frame.line(laplace, "mark"),
        frame.text(*laplace[24], "Laplace, ε = 1", dx=-8, dy=-4, anchor="end"),
    ]
    for delta, name, kind, dy in ((1e-6, "1e-6", "main", 20), (1e-9, "1e-9", "pale", -12)):
        noise = [
            hb.Gaussian.of(sensitivity=sensitivities[k], epsilon=1, delta=delta).error(0.95) for k in counts
        ]
        points = [(float(k), float(error)) for k, error in zip(counts, noise, strict=True)]
        parts += [
            frame.line(points, kind),
            frame.text(*points[24], f"Gaussian, δ = {name}", dy=dy, anchor="middle"),
        ]
    return frame.render(*parts)


def draw_audited_laws() -> str:
    """A mechanism that claims ε = 1 and has half the noise: its law on x against e times that on x′."""
    law = _laplace_law(2.0, 12)
    frame = Frame(
        "A claim of ε = 1 that does not hold",
        "counts of 1 (x) and 0 (x′) with Laplace noise of scale ½: bars must stay below the line",
        across=Axis("answer", -3.5, 4.5),
        up=Axis("probability", 0, 1),
    )
    # Bars would stand on each other's toes for both laws; the bound is a line with steps.
    steps = []
    for answer in range(-3, 5):
        bound = min(1.0, math.e * law[answer])
        steps += [(answer - 0.5, bound), (answer + 0.5, bound)]
    return frame.render(
        *(frame.bar(answer, 1, law[answer - 1]) for answer in range(-3, 5)),
        frame.line(steps, "mark"),
        frame.text(1, law[0], "on x", dy=-8, anchor="middle"),
        frame.text(-0.6, 0.9, "e times the probability on x′", anchor="end"),
    )


def _laplace_law(epsilon: float, reach: int) -> dict[int, float]:
    """The discrete Laplace law of scale 1/ε, up to `reach`."""
    q = math.exp(-epsilon)
    return {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-reach, reach + 1)}


def _normal_quantile(share: float) -> float:
    """By bisection; a picture needs no more."""
    low, high = -9.0, 9.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(-middle / math.sqrt(2)) / 2 < share else (low, middle)
    return low
