from __future__ import annotations

import subprocess
import sys

import tutelage.data


def test_every_public_name_is_there():
    assert sorted(tutelage.data.__all__) == tutelage.data.__all__
    assert all(hasattr(tutelage.data, name) for name in tutelage.data.__all__)


def test_numpy_and_scipy_are_enough():
    program = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in {"torch", "sklearn", "pandas", "PIL", "pydantic", "rich", "typer", "matplotlib", "dp_accounting"}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import tutelage.data
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
