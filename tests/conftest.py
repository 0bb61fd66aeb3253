"""What holds for every test: no example of a property is judged by its time, on a machine that others use too."""

import os

from hypothesis import settings

settings.register_profile("gavel", deadline=None, database=None, derandomize="CI" in os.environ)
settings.load_profile("gavel")
