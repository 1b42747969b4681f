"""Checkpoints resume exactly, once, and are not releases."""

import multiprocessing
import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hubbub.accounting import Budget
from hubbub.errors import Halted, InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.training import AdaptiveClipping, CorrectedAdam, ShuffledSampling, checkpoint, make_private
from hubbub.unit import Unit
from internals import inject_bits
from training.test_trainer import Counted, rows, stream


def make(data, account=None, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = options.pop("optimizer", CorrectedAdam)(model.parameters(), lr=0.05)
    settings = {
        "clipping_norm": AdaptiveClipping(1.0),
        "sampling_rate": 0.1,
        "steps": 6,
        "noise_multiplier": 1.0,
        "lot_size": 30,
        "ema_decay": 0.9,
    }
    settings |= {"allow_large_epsilon": True}
    return make_private(
        model, optimizer, data, loss=F.cross_entropy, account=account, **{**settings, **options}
    )


def test_resumed_run_equals_uninterrupted_run(tmp_path):
    data = rows(200)
    whole = make(data)
    with inject_bits(stream()):
        whole.run(progress=False)
    account = Counted([])
    first, second = make(data, account), make(data, account)
    bits = stream()
    with inject_bits(bits):
        for step in first:
            if step == 3:
                break
    first.save(tmp_path / "run.pt")
    second.resume(tmp_path / "run.pt")
    assert second.step == 3
    with inject_bits(bits):
        release = second.run(progress=False)
    assert [loss for _, loss, _ in account.charged] == [whole.privacy_loss]  # when it started
    assert release.loss == whole.privacy_loss
    assert second.clipping_norms == whole.clipping_norms
    for name, value in whole.release().value.items():
        assert torch.equal(release.value[name], value)


def test_failed_resume_leaves_checkpoint_unchanged(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer = make(data)
    next(iter(trainer))
    with pytest.raises(InvalidInput, match="folder"):
        trainer.save(tmp_path / "nowhere" / "run.pt")
    trainer.save(path)
    assert path.stat().st_mode & 0o077 == 0
    for other in (
        {"ema_decay": None},
        {"lot_size": 31},
        {"clipping_norm": 1.0},
        {"optimizer": torch.optim.SGD},
    ):
        with pytest.raises(InvalidInput, match="another"):
            make(data, **other).resume(path)
    wider = nn.Linear(4, 2)
    with pytest.raises(InvalidInput, match="another model"):
        make_private(
            wider,
            CorrectedAdam(wider.parameters()),
            data,
            loss=F.cross_entropy,
            clipping_norm=AdaptiveClipping(1.0),
            sampling_rate=0.1,
            steps=6,
            noise_multiplier=1.0,
            lot_size=30,
            account=None,
        ).resume(path)
    again = make(data)
    again.resume(path)
    assert again.step == 1


def test_dead_run_is_resumed_for_another_charge(tmp_path):
    data, path, account = rows(50), tmp_path / "run.pt", Counted([])
    first = make(data, account)
    steps = iter(first)
    next(steps)
    first.save(path)
    next(steps)  # it goes on, and dies
    with pytest.raises(Refused, match="again=True"):
        make(data, account).resume(path)
    with pytest.raises(InvalidInput, match="no account"):
        make(data).resume(path, again=True)
    second = make(data, account)
    second.resume(path, again=True)
    left = first.schedule.sampler.loss_of(range(1, 6))
    assert [loss for _, loss, _ in account.charged] == [first.privacy_loss, left]
    release = second.run(progress=False)
    assert release.loss == first.privacy_loss + left
    assert len(account.charged) == 2

    third = make(data, account)
    third.resume(path, again=True)
    assert third.privacy_loss == first.privacy_loss + left + left
    third.save(path)
    fourth = make(data, account)
    fourth.resume(path)
    assert fourth.privacy_loss == third.privacy_loss
    assert len(account.charged) == 3


def test_unpaid_run_is_charged_with_repeated_steps(tmp_path):
    data, path, account = rows(50), tmp_path / "run.pt", Counted([])
    first = make(data)
    steps = iter(first)
    next(steps)
    first.save(path)
    next(steps)
    second = make(data, account)
    second.resume(path, again=True)
    second.run(progress=False)
    assert [loss for _, loss, _ in account.charged] == [second.privacy_loss]
    assert second.privacy_loss == first.privacy_loss + first.schedule.sampler.loss_of(range(1, 6))


def test_a_link_to_a_checkpoint_is_that_checkpoint(tmp_path):
    data, path, link = rows(50), tmp_path / "run.pt", tmp_path / "latest.pt"
    first = make(data)
    steps = iter(first)
    next(steps)
    first.save(path)
    link.symlink_to(path.name)
    make(data).resume(link)
    assert link.is_symlink()
    with pytest.raises(Refused, match="before"):
        make(data).resume(path)
    with pytest.raises(Refused, match="resumed"):
        next(steps)


def test_run_interrupted_while_saving_does_not_continue_beside_its_file(tmp_path, monkeypatch):
    data, path = rows(50), tmp_path / "run.pt"
    first = make(data)
    steps = iter(first)
    next(steps)
    real = checkpoint.write_file

    def interrupted(stored, where):
        real(stored, where)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            first.save(path)
    make(data).resume(path)
    with pytest.raises(Refused, match="resumed"):
        next(steps)


def test_a_checkpoint_that_cannot_be_written_does_not_stop_the_run(tmp_path, monkeypatch):
    trainer = make(rows(50))
    steps = iter(trainer)
    next(steps)

    def full(stored, where):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_file", full)
        with pytest.raises(OSError, match="space"):
            trainer.save(tmp_path / "run.pt")
    assert next(steps) == 2


def test_failed_resume_restores_the_weights(tmp_path, monkeypatch):
    data, path = rows(50), tmp_path / "run.pt"
    first = make(data)
    next(iter(first))
    first.save(path)
    second = make(data)
    before = [p.detach().clone() for p in second.model.parameters()]

    def full(stored, where):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_file", full)
        with pytest.raises(OSError, match="space"):
            second.resume(path)
    assert all(map(torch.equal, before, second.model.parameters()))
    assert second.step == 0
    second.resume(path)
    assert second.step == 1


def test_step_length_is_bounded_by_the_noise():
    """What is taken off may leave next to nothing: no step is longer than if it had left the noise."""
    weight = nn.Parameter(torch.zeros(1000))
    optimizer = CorrectedAdam([weight], lr=1.0)
    optimizer.noise[weight] = 0.5
    weight.grad = torch.linspace(-1, 1, 1000)
    optimizer.step()
    assert (weight.detach().abs() <= weight.grad.abs() / 0.5 * 1.0001).all()


def test_checkpoint_is_resumed_once_by_the_same_run(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer = make(data)
    with pytest.raises(Halted):
        trainer.save(path)
    next(iter(trainer))
    trainer.save(path)
    with pytest.raises(InvalidInput, match="another privacy loss"):
        make(data, noise_multiplier=2.0).resume(path)
    make(data).resume(path)
    with pytest.raises(Refused, match="before"):
        make(data).resume(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(InvalidInput, match="not a checkpoint"):
        make(data).resume(path)


def test_continued_run_invalidates_its_checkpoint(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer, account = make(data), Counted([])
    steps = iter(trainer)
    next(steps)
    trainer.save(path)
    with pytest.raises(InvalidInput, match="has begun"):
        trainer.resume(path)
    next(steps)
    with pytest.raises(Refused, match="its run continued"):
        make(data, account).resume(path)
    trainer.save(path)
    trainer.save(tmp_path / "newer.pt")
    with pytest.raises(Refused, match="its run continued"):
        make(data, account).resume(path)
    make(data).resume(tmp_path / "newer.pt")
    assert account.charged == []


def test_run_with_resumed_checkpoint_does_not_continue(tmp_path):
    """Else both would take the steps that were charged once."""
    data, path = rows(50), tmp_path / "run.pt"
    first, other = make(data), make(data)
    next(iter(first))
    first.save(path)
    other.resume(path)
    for _ in range(2):
        with pytest.raises(Refused, match="resumed"):
            next(iter(first))
    assert first.step == 1
    next(iter(other))
    other.save(path)
    path.rename(tmp_path / "elsewhere.pt")
    with pytest.raises(Refused, match="not where it was"):
        next(iter(other))
    (tmp_path / "elsewhere.pt").rename(path)
    next(iter(other))
    other.save(path)
    third = make(data)
    next(iter(third))
    third.save(path)  # over the other's, which might be anywhere
    with pytest.raises(Refused, match="not where it was"):
        next(iter(other))
    assert next(iter(third)) == 2


def test_refused_save_does_not_stop_the_run(tmp_path):
    trainer = make(rows(40), sampling_rate=ShuffledSampling(40, 10), clipping_norm=1.0)
    next(iter(trainer))
    with pytest.raises(InvalidInput, match="within an epoch"):
        trainer.save(tmp_path / "run.pt")
    assert next(iter(trainer)) == 2


def test_checkpoint_is_refused_for_a_reordered_schedule(tmp_path):
    """All steps cost the same together; those that are left do not."""
    data, path = rows(50), tmp_path / "run.pt"
    quiet, loud = [9.0, 9.0, 9.0], [1.0, 1.0, 1.0]
    trainer, other = make(data, noise_multiplier=loud + quiet), make(data, noise_multiplier=quiet + loud)
    assert trainer.privacy_loss == other.privacy_loss
    for step in trainer:
        if step == 3:
            break
    trainer.save(path)
    with pytest.raises(InvalidInput, match="another privacy loss"):
        other.resume(path)
    make(data, noise_multiplier=loud + quiet).resume(path)


def test_checkpoint_is_refused_for_another_unit(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer = make(data, units=[place % 25 for place in range(50)], unit="patient")
    next(iter(trainer))
    trainer.save(path)
    with pytest.raises(InvalidInput, match="another unit"):
        make(data).resume(path)


def test_checkpoint_is_locked_and_unchanged_if_refused(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer = make(data)
    next(iter(trainer))
    trainer.save(path)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="another privacy loss"):
        make(data, noise_multiplier=2.0).resume(path)
    assert path.read_bytes() == before
    (tmp_path / "run.pt.claimed").touch()  # as one who reads it does
    with pytest.raises(InvalidInput, match="another process"):
        make(data).resume(path)


def test_unpaid_run_is_charged_when_resumed(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    first, account = make(data), Counted([])
    next(iter(first))
    first.save(path)
    second = make(data, account)
    second.resume(path)
    with pytest.raises(Halted):
        second.release()
    second.run(progress=False)
    assert [(what, loss) for what, loss, _ in account.charged] == [("training, 6 steps", second.privacy_loss)]


def test_shuffled_runs_are_saved_between_epochs(tmp_path):
    trainer = make(rows(40), sampling_rate=ShuffledSampling(40, 10), clipping_norm=1.0)
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
    optimizer = CorrectedAdam([weight], lr=1.0, betas=(0.0, 0.999), floor=0.0)
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


# Copies


def stopped(data, path, account=None, steps=2):
    """A run that was saved after some steps."""
    trainer = make(data, account)
    for step in trainer:
        if step == steps:
            break
    trainer.save(path)
    return trainer


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "rows.ledger") as ledger_:
        yield ledger_


def of(ledger):
    return ledger.account("rows", Unit.row(), Budget(1000, 1e-2, population=50, allow_large_epsilon=True))


def charges(ledger):
    return [entry.body["description"] for entry in ledger.entries() if entry.kind == "charge"]


def test_copy_of_a_resumed_checkpoint_is_refused(tmp_path, ledger):
    data, path, copy = rows(50), tmp_path / "run.pt", tmp_path / "copy.pt"
    stopped(data, path, of(ledger))
    shutil.copy(path, copy)
    make(data, of(ledger)).resume(path)
    with pytest.raises(Refused, match="resumed before"):
        make(data, of(ledger)).resume(copy)
    assert charges(ledger) == ["training, 6 steps", "training, continued from a checkpoint"]
    spent = of(ledger).spent().epsilon
    again = make(data, of(ledger))
    again.resume(copy, again=True)
    assert of(ledger).spent().epsilon > spent
    assert again.privacy_loss == again.schedule.sampler.privacy_loss + again.schedule.sampler.loss_of(
        range(2, 6)
    )
    assert ledger.verify().ok


def test_copy_is_refused_after_its_run_continued(tmp_path, ledger):
    data, path, copy = rows(50), tmp_path / "run.pt", tmp_path / "copy.pt"
    first = stopped(data, path, of(ledger))
    shutil.copy(path, copy)
    next(iter(first))
    with pytest.raises(Refused, match="its run continued"):
        make(data, of(ledger)).resume(copy)
    # The other way round: who has the copy was first.
    second = stopped(data, path, of(ledger))
    shutil.copy(path, copy)
    make(data, of(ledger)).resume(copy)
    with pytest.raises(Refused, match="resumed"):
        next(iter(second))
    with pytest.raises(Refused, match="resumed"):
        make(data, of(ledger)).resume(path)


def test_other_ledger_pays_for_the_whole_run(tmp_path, ledger):
    data, path = rows(50), tmp_path / "run.pt"
    stopped(data, path, of(ledger))
    with Ledger.open(tmp_path / "other.ledger") as other:
        make(data, of(other)).resume(path)
        assert charges(other) == ["training, 6 steps", "training, continued from a checkpoint"]
        assert of(other).spent() == of(ledger).spent()


def test_run_paid_by_a_ledger_needs_it_to_resume(tmp_path, ledger):
    data, path, account = rows(50), tmp_path / "run.pt", Counted([])
    stopped(data, path, of(ledger))
    with pytest.raises(InvalidInput, match="no account"):
        make(data).resume(path)
    second = make(data, account)
    second.resume(path)
    second.run(progress=False)
    assert [loss for _, loss, _ in account.charged] == [second.privacy_loss]


def test_without_a_ledger_only_the_saving_process_resumes_once(tmp_path):
    data, path, copy = rows(50), tmp_path / "run.pt", tmp_path / "copy.pt"
    for account in (None, Counted([])):
        stopped(data, path, account)
        shutil.copy(path, copy)
        make(data, account).resume(path)
        with pytest.raises(Refused, match="resumed before"):
            make(data, account).resume(copy)
        second = make(data, account)
        second.resume(copy, again=True)
        assert second.privacy_loss == second.schedule.sampler.privacy_loss + second.schedule.sampler.loss_of(
            range(2, 6)
        )


ELSEWHERE = """
import sys
import torch
from hubbub.errors import Refused
from training.test_checkpoint import make
from training.test_trainer import Counted, rows

account = Counted([])
paying = make(rows(50), account)
paying.resume(sys.argv[1])
paying.run(progress=False)
assert [loss for _, loss, _ in account.charged] == [paying.privacy_loss]
try:
    make(rows(50)).resume(sys.argv[2])
except Refused:
    print("refused")
"""


def test_another_process_pays_again_or_is_refused(tmp_path):
    paid, unpaid = tmp_path / "paid.pt", tmp_path / "unpaid.pt"
    stopped(rows(50), paid, Counted([]))
    stopped(rows(50), unpaid)
    process = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, paid, unpaid],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout.strip() == "refused", process.stderr


def in_a_fork(work):
    """What work says in a child that is a copy of this process."""
    forked = multiprocessing.get_context("fork")
    outcomes = forked.SimpleQueue()

    def child():
        try:
            outcomes.put(work())
        except BaseException as error:
            outcomes.put(type(error).__name__)

    process = forked.Process(target=child)
    process.start()
    result = outcomes.get()
    process.join()
    return result


def test_forked_run_is_refused(tmp_path):
    data, path = rows(50), tmp_path / "run.pt"
    trainer = make(data)
    steps = iter(trainer)
    next(steps)
    assert in_a_fork(lambda: next(steps)) == "Refused"
    assert in_a_fork(lambda: next(iter(trainer))) == "Refused"
    assert in_a_fork(lambda: trainer.release() and "released") == "Refused"
    assert in_a_fork(lambda: trainer.save(path)) == "Refused"
    trainer.save(path)
    assert in_a_fork(lambda: make(data).resume(path)) == "Refused"  # it remembers nothing of the file
    assert next(steps) == 2


def test_workers_that_load_examples_may_be_forked():
    class Loaded(torch.utils.data.Dataset):
        """Each example comes from a worker, as from a slow disk."""

        def __init__(self):
            self.x, self.y = rows(40)
            pairs = torch.utils.data.TensorDataset(self.x, self.y)
            self.loader = torch.utils.data.DataLoader(
                pairs, batch_size=40, num_workers=1, multiprocessing_context="fork"
            )

        def __len__(self):
            return 40

        def __getitem__(self, place):
            (x, y) = next(iter(self.loader))
            return x[place], y[place]

    trainer = make(Loaded(), padding_example=(torch.zeros(4), torch.tensor(0)), sampling_rate=0.05, steps=2)
    trainer.run(progress=False)
    assert trainer.step == 2


def test_a_checkpoint_is_not_written_over_rows_or_a_ledger(tmp_path, ledger):
    """Nor by a link; and what was saved before stands."""
    data, path = rows(50), tmp_path / "run.pt"
    trainer = stopped(data, path, of(ledger))
    (tmp_path / "link.pt").symlink_to(tmp_path / "rows.ledger")
    before = (tmp_path / "rows.ledger").read_bytes()
    for lost in ("rows.ledger", "link.pt"):
        with pytest.raises(Refused, match="would be lost"):
            trainer.save(tmp_path / lost)
    assert (tmp_path / "rows.ledger").read_bytes() == before
    other = make(data, of(ledger))
    other.resume(path)
    assert other.step == trainer.step


def test_files_beside_a_checkpoint_are_kept(tmp_path):
    beside = tmp_path / "run.pt.new"
    beside.write_text("mine")
    trainer = make(rows(50))
    next(iter(trainer))
    trainer.save(tmp_path / "run.pt")
    assert beside.read_text() == "mine"
    assert (tmp_path / "run.pt").stat().st_mode & 0o777 == 0o600
