"""The textbook in fifty lines: count, choose, toss a coin, and know what it cost and how far it is off."""

from hubbub import Gaussian, Laplace, choose_additive_noise
from hubbub.mechanisms import AboveThreshold, RandomizedResponse, ReportNoisyMax
from hubbub.textbook import count, counts, histogram

smokers = [True] * 310 + [False] * 690
towns = ["Ulm"] * 500 + ["Jena"] * 300 + ["Graz"] * 200

# A counting query: one person moves it by 1, so noise of scale 1/ε hides her.
laplace = Laplace.of(sensitivity=1, epsilon=0.5)
print(laplace, "· off by", laplace.error(0.95), "at most, in 95 % of cases")
answer = laplace.release(count(smokers, bool))
print("smokers:", answer.value, "· the exact count lies in", answer.interval(0.95))

# A histogram: its cells are disjoint, so that all of them together cost what one does.
cells = laplace.release(histogram(towns, ["Ulm", "Jena", "Graz", "Bern"]))
print("towns:", cells.value.tolist(), "· all four within", cells.error(0.95, simultaneous=True))

# Thirty overlapping counts: one person may move all of them, so Gaussian noise does better.
many = counts(range(1000), [lambda age, k=k: age > 30 * k for k in range(30)])
print(choose_additive_noise(sensitivity=many.sensitivity, epsilon=1, delta=1e-6, coordinates=30))

# Report noisy max: which town is the largest; only the name leaves.
best = ReportNoisyMax.of(sensitivity=1, epsilon=0.5, monotone=True).release([500, 300, 200])
print("largest:", best.map(["Ulm", "Jena", "Graz"].__getitem__).value)

# Sparse vector: many questions, paid once, until one is above the threshold.
session = AboveThreshold.of(sensitivity=1, epsilon=1, threshold=400).open()
for town in ["Graz", "Jena", "Ulm"]:
    above = session.ask(towns.count(town))
    print(f"{town} above 400?", above)
    if above:
        break

# Randomized response: each tosses her own coins, and the crowd's share still comes out.
coin = RandomizedResponse.coin()
share = coin.estimate(coin.release([int(smoker) for smoker in smokers]))
print(f"smokers by coin: {share.counts[1]:.0f}, between {share.low[1]:.0f} and {share.high[1]:.0f}")

# What it cost: losses add, groups pay more, and δ is shown for any ε.
spent = answer.loss + cells.loss + best.loss + session.mechanism.loss()
print("in all:", spent, "· for a family of 4:", spent.for_group(4))
gaussian = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, population=10_000)
print("with a Gaussian answer: ε =", round((spent + gaussian.loss()).epsilon(1e-6), 4), "at δ = 1e-6")
