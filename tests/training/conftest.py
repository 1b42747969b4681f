"""One thread and the same random numbers for all: what protects has its own, which no test seeds."""

import pytest
import torch


@pytest.fixture(autouse=True)
def same_weights():
    torch.set_num_threads(1)
    torch.manual_seed(0)
