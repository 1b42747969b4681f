"""Handwritten digits, learned privately: features that no data chose, and one linear layer on them.

    python examples/mnist.py                     a small part, in seconds
    python examples/mnist.py --full              ε = 1, 3, 8 with all images, three runs each
    python examples/mnist.py --full --held-out   the same without the test images: how settings were chosen
    python examples/mnist.py --paper             the protocol of Abadi et al.: private PCA, 1000 ReLUs
    python examples/mnist.py --data FOLDER       where MNIST's four files are, if not in ../shared/data/mnist

δ is 1e-5; one image is one person's. No setting has seen a test image: each was chosen by `--held-out`,
which learns from the first 50,000 training images and looks at the other 10,000, out of a few: learning
rates 4 and 8, 15 and 25 epochs, lots of 4096 and 8192, three ways to halve an image. Looking there is not
paid for: settings are taken to be public, as in all that is published of MNIST.
"""

import argparse
import gzip
import math
import os
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hubbub as hb

DELTA = 1e-5
TRAIN, HELD_OUT = 60_000, 10_000  # how many images there are is public
FOLDERS = (
    Path(os.environ.get("HUBBUB_DATA", Path(__file__).parents[1] / "../shared/data")) / "mnist",
    Path("mnist"),
)

Labelled = tuple[Tensor, Tensor]


def images(folder: Path, part: str) -> Labelled:
    """Pixels within 0 and 1, and labels."""
    pixels = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
    x = torch.from_numpy(np.frombuffer(pixels, np.uint8).reshape(-1, 28, 28).copy())
    return x.float() / 255, torch.from_numpy(np.frombuffer(labels, np.uint8).copy()).long()


def both(folder: Path, *, held_out: bool) -> tuple[Labelled, Labelled]:
    """Images to learn from, and to look at afterwards."""
    x, y = images(folder, "train")
    if held_out:
        return (x[:-HELD_OUT], y[:-HELD_OUT]), (x[-HELD_OUT:], y[-HELD_OUT:])
    return (x, y), images(folder, "t10k")


# Scattering: wavelets and absolute values, twice, then a blur. Nothing in it is learned. The second time, and
# the coarse scale, are the same small wavelets on an image of half the size.

ANGLES, REACH = 8, 3


def wavelets() -> Tensor:
    """Morlet wavelets by angle, real and imaginary parts, as the kernels of a convolution."""
    at = torch.arange(-REACH, REACH + 1.0)
    y, x = torch.meshgrid(at, at, indexing="ij")
    results = []
    for angle in torch.arange(ANGLES) * math.pi / ANGLES:
        along = x * angle.cos() + y * angle.sin()
        across = y * angle.cos() - x * angle.sin()
        bell = torch.exp(-(along**2 + (across / 2) ** 2) / (2 * 0.8**2)) / (4 * math.pi * 0.8**2)
        wave = bell * torch.exp(0.75j * math.pi * along)
        wave -= wave.sum() / bell.sum() * bell  # blind to a constant
        results += [wave.real, wave.imag]
    return torch.stack(results)[:, None]


def blur(pixels: int) -> Tensor:
    """From this number of pixels to 7, along one side."""
    places = (torch.arange(pixels) + 0.5) * 28 / pixels
    bells = torch.exp(-((4 * torch.arange(7)[:, None] + 2 - places) ** 2) / (2 * 1.6**2))
    return bells / bells.sum(1, keepdim=True)


def scattered(pixels: Tensor, at_once: int = 64) -> Tensor:
    """81 channels of 7×7 for each image, standardised in groups of three."""
    kernels, binomial = wavelets(), torch.tensor([1.0, 3.0, 3.0, 1.0]) / 8
    halving = torch.outer(binomial, binomial)[None, None]
    full, half = blur(28), blur(14)

    def modulus(channels: Tensor) -> Tensor:
        """How strong each wavelet is, everywhere in each channel."""
        count, size = channels.shape[1], channels.shape[2:]
        waves = F.conv2d(channels.reshape(-1, 1, *size), kernels, padding=REACH)
        return waves.unflatten(1, (-1, 2)).square().sum(2).sqrt().reshape(-1, count * ANGLES, *size)

    results = []
    for image in pixels[:, None].split(at_once):
        first = torch.cat([image, modulus(image)], dim=1)
        halved = F.conv2d(first.reshape(-1, 1, 28, 28), halving, stride=2, padding=1)
        second = modulus(halved.reshape(-1, 1 + ANGLES, 14, 14))
        channels = torch.cat([full @ first @ full.T, half @ second @ half.T], dim=1)
        results.append(F.group_norm(channels, 27).flatten(1))
    return torch.cat(results)


def learned(train: Labelled, epsilon: float, *, lot: int, people: int, epochs: int) -> nn.Module:
    """A linear layer on the features, within (ε, 1e-5)."""
    model = nn.Linear(train[0].shape[1], 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    trainer = hb.training.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=4.0, momentum=0.9),
        train,
        loss=F.cross_entropy,
        clipping_norm=0.1,
        sampling_rate=Fraction(lot, people),
        steps=epochs * people // lot,
        budget=hb.Budget(epsilon, DELTA),
        lot_size=lot,
        ema_decay=0.97,
        account=None,
    )
    model.load_state_dict(trainer.run(progress=False).value)
    return model


def right(model: nn.Module, test: Labelled) -> float:
    with torch.no_grad():
        return (model(test[0]).argmax(1) == test[1]).float().mean().item()


def scattering(
    folder: Path, *, rows: int | None = None, runs: int = 3, held_out: bool = False
) -> dict[int, list[float]]:
    """The share of test images that each run gets right, by ε."""
    start = time.perf_counter()
    train, test = ((scattered(x[:rows]), y[:rows]) for x, y in both(folder, held_out=held_out))
    print(f"features of {len(train[0])} and {len(test[0])} images: {time.perf_counter() - start:.0f} s")
    lot, people, epochs = (4096, TRAIN, 25) if rows is None else (256, rows, 10)
    results = {}
    for epsilon in (1, 3, 8):
        results[epsilon] = [
            right(learned(train, epsilon, lot=lot, people=people, epochs=epochs), test) for _ in range(runs)
        ]
        each = ", ".join(f"{100 * one:.2f}" for one in results[epsilon])
        print(
            f"ε = {epsilon}: {100 * np.mean(results[epsilon]):.2f} % of unseen images right ({each})",
            flush=True,
        )
    print(f"{time.perf_counter() - start:.0f} s in all")
    return results


# The paper's protocol: private PCA to 60 dimensions, 1000 ReLUs, lots of 600, gradients clipped to 4

LOT, CLIP, SCALE = 600, 4.0, 16.0
# Chosen by `--held-out` out of learning rates from 0.02 to 0.1, the same throughout or falling, 400 to 10,000
# steps, scales from 8 to 32, directions as they are and evened out, images as they are and shifted.
PACE = {"lr": 0.04, "momentum": 0.9}
LAST = 0.05  # of the learning rate, in the end: the last steps' noise counts most
# An image, and the same one pixel further: all are one person's, and the mean of their gradients is clipped.
# The mean says more of digits and less of one image, at no further cost.
SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
PAPER = {
    0.5: {"pca": 0.2, "steps": 600},
    2: {"pca": 0.5, "steps": 2000},
    8: {"pca": 1.0, "steps": 5000},
}


def directions(x: Tensor, epsilon: float) -> tuple[Tensor, hb.PrivacyLoss]:
    """The 60 main directions of unit-length images, from their second moments with noise.

    Most of an image is what all images share. The longer directions are shortened, to the square root of what
    they were, so that clipping leaves room for the others: that is known from the same noisy moments.
    """
    unit = unit_length(x).double()
    rows, columns = np.triu_indices(784)
    moments = (unit.T @ unit).numpy()[rows, columns]
    # One image adds x·xᵀ, of norm at most 1; a little more is for the rounding of doubles.
    size = hb.Sensitivity(800, l2=1.001)
    mechanism = hb.Gaussian.of(
        sensitivity=size, epsilon=epsilon, delta=1e-6, real=True, coordinates=rows.size
    )
    noisy = np.zeros((784, 784))
    noisy[rows, columns] = noisy[columns, rows] = mechanism.release(moments).value
    strength, result = torch.linalg.eigh(torch.from_numpy(noisy))
    even = strength[-60:].clamp_min(1e-4 * strength[-1].item()) ** -0.25
    return (result[:, -60:] * even).float(), mechanism.loss()


def projected(x: Tensor, rotation: Tensor) -> Tensor:
    """Images along these directions, all of one length."""
    result = unit_length(x) @ rotation
    return SCALE * result / result.norm(dim=1, keepdim=True).clamp_min(1e-6)


def unit_length(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    return flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-6)


def paper(train: Labelled, test: Labelled, epsilon: float, *, pca: float, steps: int) -> float:
    """The share of test images that are got right within ε, of which the PCA spends some."""
    start = time.perf_counter()
    rotation, price = directions(train[0], pca)
    rate = Fraction(LOT, TRAIN)
    shifted = torch.stack([projected(train[0].roll(shift, (1, 2)), rotation) for shift in SHIFTS], dim=1)
    owners = np.repeat(np.arange(len(shifted)), len(SHIFTS))

    def whole(sigma: Fraction) -> hb.PrivacyLoss:
        return price + hb.PrivacyLoss.gaussian(1 / sigma).poisson_subsampled(rate) * steps

    model = nn.Sequential(nn.Linear(60, 1000), nn.ReLU(), nn.Linear(1000, 10))
    optimizer = torch.optim.SGD(model.parameters(), **PACE)
    trainer = hb.training.make_private(
        model,
        optimizer,
        (shifted.flatten(0, 1), train[1].repeat_interleave(len(SHIFTS))),
        units=owners,
        unit="image",
        examples_per_unit=len(SHIFTS),
        loss=F.cross_entropy,
        clipping_norm=CLIP,
        sampling_rate=rate,
        steps=steps,
        noise_multiplier=hb.calibrate(whole, epsilon, DELTA),
        lot_size=LOT,
        ema_decay=0.99,
        account=None,
    )
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, LAST, steps)
    for _ in trainer:
        falling.step()
    model.load_state_dict(trainer.release().value)
    result = right(model, (projected(test[0], rotation), test[1]))
    spent, seconds = (price + trainer.privacy_loss).epsilon(DELTA), time.perf_counter() - start
    print(f"ε = {spent:.3f}, PCA included: {100 * result:.2f} % right of others, {seconds:.0f} s", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST, learned privately.")
    parser.add_argument("--data", type=Path, help="the folder with MNIST's four files")
    parser.add_argument("--full", action="store_true", help="all images, several runs for each ε")
    parser.add_argument("--runs", type=int, default=3, help="how many, with --full")
    parser.add_argument("--paper", action="store_true", help="private PCA and a hidden layer, as in 2016")
    parser.add_argument("--held-out", action="store_true", help="look at training images set aside instead")
    arguments = parser.parse_args()
    folder = next(
        (f for f in (arguments.data, *FOLDERS) if f and (f / "t10k-labels-idx1-ubyte.gz").exists()), None
    )
    print("Digits, learned with differential privacy; δ =", DELTA)
    print("One image is one person's: it is added or removed.")
    if folder is None:
        print("MNIST's files are not here.")
        print("Pass --data with the folder that holds train-images-idx3-ubyte.gz and the other three.")
        print("Nothing was trained.")
    elif arguments.paper:
        train, test = both(folder, held_out=arguments.held_out)
        for epsilon, settings in PAPER.items():
            paper(train, test, epsilon, **settings)
    elif arguments.full:
        scattering(folder, runs=arguments.runs, held_out=arguments.held_out)
    else:
        scattering(folder, rows=1000, runs=1, held_out=arguments.held_out)


if __name__ == "__main__":
    main()
