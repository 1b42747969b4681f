"""Handwritten digits, learned privately: features that no data chose, and one linear layer on them.

    python examples/mnist.py                     a small part, in seconds
    python examples/mnist.py --full              ε = 1, 3, 8 with all images, three runs each
    python examples/mnist.py --paper             the protocol of Abadi et al.: private PCA, 1000 ReLUs
    python examples/mnist.py --data FOLDER       where MNIST's four files are, if not in ../shared/data/mnist

All settings were chosen without the test images. δ is 1e-5; one image is one person's.
"""

import argparse
import gzip
import math
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hubbub as hb

DELTA = 1e-5
FOLDERS = (Path(__file__).parents[1] / "../shared/data/mnist", Path("mnist"))


def images(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Pixels within 0 and 1, and labels."""
    pixels = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
    x = torch.from_numpy(np.frombuffer(pixels, np.uint8).reshape(-1, 28, 28).copy())
    return x.float() / 255, torch.from_numpy(np.frombuffer(labels, np.uint8).copy()).long()


# Scattering: two layers of wavelets and absolute values, then a blur. Nothing in it is learned.

SIDE, ANGLES, SCALES = 36, 8, 2


def wavelets() -> list[list[Tensor]]:
    """Morlet wavelets by scale and angle, in the Fourier domain."""
    at = torch.arange(SIDE) - SIDE // 2
    y, x = torch.meshgrid(at, at, indexing="ij")

    def gabor(width: float, angle: float, wave: float) -> Tensor:
        along = x * math.cos(angle) + y * math.sin(angle)
        across = -x * math.sin(angle) + y * math.cos(angle)
        bell = torch.exp(-(along**2 + (4 / ANGLES * across) ** 2) / (2 * width**2))
        return bell * torch.exp(1j * wave * along) * (4 / ANGLES) / (2 * math.pi * width**2)

    def morlet(scale: int, angle: float) -> Tensor:
        width, wave = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
        waving, flat = gabor(width, angle, wave), gabor(width, angle, 0.0)
        return torch.fft.fft2(torch.fft.ifftshift(waving - waving.sum() / flat.sum() * flat))

    return [[morlet(scale, k * math.pi / ANGLES) for k in range(ANGLES)] for scale in range(SCALES)]


def scattered(pixels: Tensor, at_once: int = 16) -> Tensor:
    """81 channels of 7×7 for each image, standardised in groups of three."""
    fine, coarse = (torch.stack(bank) for bank in wavelets())
    places = 4 + 4.0 * torch.arange(7)[:, None] - torch.arange(SIDE)
    blur = torch.exp(-(places**2) / (2 * 1.6**2))
    blur /= blur.sum(1, keepdim=True)
    found = []
    for part in pixels.split(at_once):
        image = F.pad(part, (4, 4, 4, 4))
        spectrum = torch.fft.fft2(image)[:, None]
        first = torch.fft.ifft2(spectrum * fine).abs()
        second = torch.fft.ifft2(spectrum * coarse).abs()
        third = torch.fft.ifft2(torch.fft.fft2(first)[:, :, None] * coarse).abs().flatten(1, 2)
        channels = torch.cat([image[:, None], first, second, third], dim=1)
        found.append(F.group_norm(blur @ channels @ blur.T, 27).flatten(1))
    return torch.cat(found)


def learned(train: tuple[Tensor, Tensor], epsilon: float, *, lot: int, epochs: int) -> nn.Module:
    """A linear layer on the features, within (ε, 1e-5)."""
    features, labels = train
    people = len(features)  # taken to be public, as MNIST's size is
    model = nn.Linear(features.shape[1], 10)
    nn.init.zeros_(model.weight)
    trainer = hb.learn.private(
        model,
        torch.optim.SGD(model.parameters(), lr=8.0, momentum=0.9),
        (features, labels),
        loss=F.cross_entropy,
        clip=0.1,
        rate=Fraction(lot, people),
        steps=epochs * people // lot,
        target=hb.Budget(epsilon, DELTA),
        lot=lot,
        average=0.97,
    )
    release = trainer.run(progress=False)
    model.load_state_dict(release.value)
    return model


def right(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    with torch.no_grad():
        return (model(test[0]).argmax(1) == test[1]).float().mean().item()


def scattering(folder: Path, rows: int | None, runs: int) -> None:
    start = time.perf_counter()
    (x, y), (x_test, y_test) = images(folder, "train"), images(folder, "t10k")
    train = scattered(x[:rows]), y[:rows]
    test = scattered(x_test[:rows]), y_test[:rows]
    print(f"features of {len(train[0])} and {len(test[0])} images: {time.perf_counter() - start:.0f} s")
    lot, epochs = (4096, 25) if rows is None else (256, 20)
    for epsilon in (1, 3, 8):
        found = [right(learned(train, epsilon, lot=lot, epochs=epochs), test) for _ in range(runs)]
        each = ", ".join(f"{100 * one:.2f}" for one in found)
        print(f"ε = {epsilon}: {100 * np.mean(found):.2f} % of test images right ({each})", flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all")


# The paper's protocol


def projected(x: Tensor, epsilon: float) -> tuple[Tensor, hb.Loss]:
    """The 60 main directions of unit-length images, from their second moments with noise."""
    flat = x.flatten(1).double()
    unit = flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-6)
    rows, columns = np.triu_indices(784)
    moments = (unit.T @ unit).numpy()[rows, columns]
    # One image adds x·xᵀ, of norm at most 1; a little more is for the rounding of doubles.
    size = hb.Sensitivity(800, l2=1.001)
    mechanism = hb.Gaussian.of(sensitivity=size, epsilon=epsilon, delta=1e-6, real=True, cells=rows.size)
    noisy = np.zeros((784, 784))
    noisy[rows, columns] = noisy[columns, rows] = mechanism.release(moments).value
    _, directions = torch.linalg.eigh(torch.from_numpy(noisy))
    return directions[:, -60:].float(), mechanism.loss()


def paper(folder: Path) -> None:
    (x, y), (x_test, y_test) = images(folder, "train"), images(folder, "t10k")
    rate = Fraction(600, 60_000)
    # ε of all and of the PCA, steps, learning rate
    for epsilon, first, steps, pace in ((0.5, 0.2, 500, 0.2), (2, 0.5, 2000, 0.2), (8, 1.0, 8000, 0.1)):
        directions, price = projected(x, first)

        def both(sigma: Fraction, price: hb.Loss = price, steps: int = steps) -> hb.Loss:
            return price + hb.Loss.gaussian(1 / sigma).sampled(rate) * steps

        sigma = hb.calibrate(both, epsilon, DELTA)

        def features(given: Tensor, directions: Tensor = directions) -> Tensor:
            flat = given.flatten(1)
            return flat @ directions / flat.norm(dim=1, keepdim=True).clamp_min(1e-6) * 8

        model = nn.Sequential(nn.Linear(60, 1000), nn.ReLU(), nn.Linear(1000, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=pace)
        trainer = hb.learn.private(
            model,
            optimizer,
            (features(x), y),
            loss=F.cross_entropy,
            clip=4.0,
            rate=rate,
            steps=steps,
            sigma=sigma,
            lot=600,
            average=0.99,
        )
        start = time.perf_counter()
        model.load_state_dict(trainer.run(progress=False).value)
        found = right(model, (features(x_test), y_test))
        spent = (price + trainer.loss).epsilon(DELTA)
        seconds = time.perf_counter() - start
        print(
            f"ε = {spent:.3f}, PCA included: {100 * found:.2f} % of test images right, {seconds:.0f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST, learned privately.")
    parser.add_argument("--data", type=Path, help="the folder with MNIST's four files")
    parser.add_argument("--full", action="store_true", help="all images, three runs for each ε")
    parser.add_argument("--runs", type=int, default=3, help="runs for each ε, with --full")
    parser.add_argument("--paper", action="store_true", help="private PCA and a hidden layer, as in 2016")
    given = parser.parse_args()
    folder = next(
        (f for f in (given.data, *FOLDERS) if f and (f / "t10k-labels-idx1-ubyte.gz").exists()), None
    )
    print("Digits, learned with differential privacy; δ =", DELTA)
    print("One image is one person's: it is added or removed.")
    if folder is None:
        print("MNIST's files are not here.")
        print("Pass --data with the folder that holds train-images-idx3-ubyte.gz and the other three.")
        print("Nothing was trained.")
    elif given.paper:
        paper(folder)
    elif given.full:
        scattering(folder, None, given.runs)
    else:
        scattering(folder, 1000, 1)


if __name__ == "__main__":
    main()
