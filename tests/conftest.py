"""One hypothesis profile for every test: the same examples on every machine, and no clock."""

from hypothesis import settings

settings.register_profile("tutelage", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("tutelage")
