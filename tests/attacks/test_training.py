"""Examples stay apart at every step.

| row | what an attacker does | mutant |
|---|---|---|
| A46 | lets a counter far from the model switch on batch centring or mix-up later | looked_at_once |
| A47 | copies a checkpoint, and goes on from both files: two runs for one charge | resumed_by_the_file |
| A41-trainer | forks a run: parent and child each take the step that was charged once | forked |
"""

import multiprocessing
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from attacks import mutants_training as mutants
from attacks.rows import Row, both_tests
from hubbub.accounting import Budget
from hubbub.errors import HubbubError
from hubbub.ledger import Ledger
from hubbub.training import make_private
from hubbub.unit import Unit
from training import late

LATE = [late.by_a_setting, late.by_a_loss, late.by_mixing_up, late.without_gradients]


def attack_A46(target):
    """One example moves a later step's sum by more than the threshold."""
    with tempfile.TemporaryDirectory() as folder:
        return any(late.moves(way, Path(folder), run=target) > 1 for way in LATE)


def _trainer(account=None):
    model = nn.Linear(4, 2)
    x, y = late.rows(40)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {
        "clipping_norm": 1.0,
        "sampling_rate": 0.5,
        "steps": 4,
        "noise_multiplier": 1.0,
        "lot_size": 20,
    }
    return make_private(model, optimizer, (x, y), loss=F.cross_entropy, account=account, **settings)


def attack_A47(target):
    """Both files are gone on from, and the ledger has not been charged for it."""
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "rows.ledger") as ledger:
        account = ledger.account("rows", Unit.row(), Budget(20, 1e-3))
        first, path, copy = _trainer(account), Path(folder) / "run.pt", Path(folder) / "copy.pt"
        next(iter(first))
        first.save(path)
        shutil.copy(path, copy)
        spent = account.epsilon(1e-5)
        try:
            for file in (path, copy):
                second = _trainer(account)
                target.resume(second, file)
                second.run(progress=False)
        except HubbubError:
            return False
        return account.epsilon(1e-5) == spent


def attack_A41(target):
    """A child of this process takes the next step as well."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # those of a parent are not there in a child
    try:
        trainer = target(_trainer())
        steps = iter(trainer)
        next(steps)
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_step, args=(steps, theirs))
        child.start()
        result = ours.recv() if ours.poll(120) else None
        child.kill()
        child.join()
        return result is not None and next(steps) == result
    finally:
        torch.set_num_threads(threads)


def _step(steps, pipe):
    try:
        pipe.send(next(steps))
    except HubbubError:
        pipe.send(None)


OURS = SimpleNamespace(resume=lambda trainer, path: trainer.resume(path))

ROWS = [
    Row("A46", attack_A46, {"private": make_private}, mutants.looked_at_once),
    Row("A47", attack_A47, {"resume": OURS}, mutants.resumed_by_the_file),
    Row("A41-trainer", attack_A41, {"a run": lambda trainer: trainer}, mutants.forked),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
