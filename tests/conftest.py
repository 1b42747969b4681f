"""What every test shares: hypothesis draws the same examples in every run, so no test fails at random."""

from hypothesis import settings

settings.register_profile("hubbub", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("hubbub")
