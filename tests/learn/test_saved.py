"""Checkpoints resume exactly, once, and are not releases."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hubbub.errors import Halted, InvalidInput, Refused
from hubbub.learn import Adaptive, CorrectedAdam, Fixed, private
from hubbub.noise.entropy import _replaying
from learn.test_trainer import Counted, rows, stream


def made(data, account=None, **given):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = given.pop("optimizer", CorrectedAdam)(model.parameters(), lr=0.05)
    settings = {"clip": Adaptive(1.0), "rate": 0.1, "steps": 6, "sigma": 1.0, "lot": 30, "average": 0.9}
    return private(model, optimizer, data, loss=F.cross_entropy, account=account, **{**settings, **given})


def test_a_run_in_two_parts_is_the_run_in_one(tmp_path):
    data = rows(200)
    whole = made(data)
    with _replaying(stream()):
        whole.run(progress=False)
    account = Counted([])
    first, second = made(data, Counted([])), made(data, account)
    with _replaying(stream()):
        for step in first:
            if step == 3:
                break
        first.save(tmp_path / "run.pt")
        second.resume(tmp_path / "run.pt")
        assert second.step == 3
        release = second.run(progress=False)
    assert account.charged == []  # it was charged when it started
    assert release.loss == whole.loss
    assert second.clips == whole.clips
    for name, value in whole.release().value.items():
        assert torch.equal(release.value[name], value)


def test_a_checkpoint_is_taken_up_once_and_by_the_same_run(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer = made(data)
    with pytest.raises(Halted):
        trainer.save(path)
    next(iter(trainer))
    trainer.save(path)
    with pytest.raises(InvalidInput, match="another loss"):
        made(data, sigma=2.0).resume(path)
    made(data).resume(path)
    with pytest.raises(Refused, match="before"):
        made(data).resume(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(InvalidInput, match="not a checkpoint"):
        made(data).resume(path)


def test_a_run_that_goes_on_leaves_no_second_run_behind(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer, account = made(data), Counted([])
    steps = iter(trainer)
    next(steps)
    trainer.save(path)
    with pytest.raises(InvalidInput, match="has begun"):
        trainer.resume(path)
    next(steps)
    with pytest.raises(Refused, match="went on"):
        made(data, account).resume(path)
    trainer.save(path)
    trainer.save(tmp_path / "newer.pt")
    with pytest.raises(Refused, match="went on"):
        made(data, account).resume(path)
    made(data).resume(tmp_path / "newer.pt")
    assert account.charged == []


def test_a_checkpoint_is_read_by_one_at_a_time_and_stays_as_it_was_where_it_is_refused(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer = made(data)
    next(iter(trainer))
    trainer.save(path)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="another loss"):
        made(data, sigma=2.0).resume(path)
    assert path.read_bytes() == before
    path.rename(tmp_path / "run.pt.claimed")  # as one who reads it does
    with pytest.raises(InvalidInput, match="nobody else"):
        made(data).resume(path)


def test_what_no_account_paid_for_is_charged_when_it_is_taken_up(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    first, account = made(data), Counted([])
    next(iter(first))
    first.save(path)
    second = made(data, account)
    second.resume(path)
    with pytest.raises(Halted):
        second.release()
    second.run(progress=False)
    assert [(what, loss) for what, loss, _ in account.charged] == [("training, 6 steps", second.loss)]


def test_shuffled_lots_are_put_aside_between_epochs(tmp_path):
    trainer = made(rows(40), rate=Fixed(40, 10), clip=1.0)
    steps = iter(trainer)
    next(steps)
    with pytest.raises(InvalidInput, match="within an epoch"):
        trainer.save(tmp_path / "run.pt")
    for _ in range(3):
        next(steps)
    trainer.save(tmp_path / "run.pt")


def test_adam_is_corrected_for_the_noise():
    """With noise far above the gradients, plain Adam's steps shrink by it; corrected ones do not."""
    weight = nn.Parameter(torch.zeros(2000))
    optimizer = CorrectedAdam([weight], lr=1.0, betas=(0.0, 0.999), floor=1e-12)
    optimizer.noise[weight] = 0.5
    torch.manual_seed(0)
    for _ in range(400):
        weight.grad = 0.05 + 0.5 * torch.randn(2000)
        optimizer.step()
    state = optimizer.state[weight]
    corrected = (state["square"] - state["noise"]) / (1 - 0.999**400)
    assert abs(corrected.mean() - 0.05**2) < 0.05**2
    with pytest.raises(TypeError):
        optimizer.step(lambda: 0.0)
