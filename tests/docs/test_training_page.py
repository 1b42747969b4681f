"""What docs/training.md says runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

import hubbub.audit
import hubbub.training
from hubbub.cli.demo import write_visits

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def outputs_of(tmp_path_factory):
    """All blocks in one session, each with what it left behind, by a part of its text."""
    folder = tmp_path_factory.mktemp("training")
    write_visits(folder / "visits.parquet")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    names = {"x": torch.randn(2000, 4), "patients": torch.arange(2000) // 2}
    names["y"] = (names["x"][:, 0] > 0).long()
    left = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in BLOCKS:
            exec(block, names)  # noqa: S102 - our own page
            left[block] = dict(names)
    return lambda text: next(names for block, names in left.items() if text in block)


def test_three_changed_lines_train_a_model(outputs_of):
    trainer = outputs_of("scheduler.step")["trainer"]
    assert trainer.step == 200
    assert trainer.epsilon() <= 2
    assert "layer rules" in trainer.gradient_method
    assert outputs_of("scheduler.step")["scheduler"].last_epoch == 200


def test_layers_and_steps_have_their_own_noise_within_one_target(outputs_of):
    trainer = outputs_of("noise_multiplier={")["trainer"]
    assert trainer.epsilon() <= 2
    assert trainer.summary()["layers"] == ["0", "2"]
    assert trainer.step == 0


def test_dataset_is_given_a_padding_example(outputs_of):
    names = outputs_of("Visits(")
    assert names["trainer"].step == 0
    names["trainer"].run(progress=False)


def test_a_run_is_charged_before_other_questions(outputs_of):
    names = outputs_of("trainer.charge()")
    assert [receipt.what for receipt in names["account"].receipts] == ["training, 100 steps", "a count"]
    assert names["account"].spent().epsilon <= 1.05


def test_patients_are_units_and_share_the_budget_of_queries(outputs_of):
    assert str(outputs_of("examples_per_unit")["trainer"].unit) == "one patient, add/remove"
    account = outputs_of("hb.open")["visits"].account
    assert 1 < account.epsilon(1e-5) <= 3


def test_run_resumes_from_its_checkpoint(outputs_of):
    assert outputs_of("resume")["trainer"].step == 100
    assert outputs_of("resume")["step"] == 60


def test_audit_on_the_page_finds_nothing(outputs_of):
    result = outputs_of("audit_training(")["found"]
    assert result.epsilon_lower <= result.epsilon_upper


def test_all_public_names_are_on_the_page():
    for name in [*hubbub.training.__all__, "audit_training", "TrainingAudit"]:
        assert name in PAGE or name == "Trainer", name
