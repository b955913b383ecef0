"""How numba is loaded."""

import subprocess
import sys

import pytest

from asa.core import compiled

pytestmark = pytest.mark.skipif(not compiled.COMPILED, reason="numba is not installed")

LOAD = "from asa.core import compiled; print(compiled.COMPILED, 'scipy.linalg' in sys.modules)"


@pytest.mark.parametrize(
    "lacks",
    [
        "",
        "sys.modules['numba.np.arraymath'] = None",
        "sys.modules['numba.np.linalg'] = None",
        "from numba.np import linalg; del linalg.ensure_blas",
    ],
)
def test_kernels_are_compiled_and_linear_algebra_is_not_loaded_whatever_numba_has_of_its_own(lacks):
    code = f"import sys; {lacks}\n{LOAD}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True False\n", done.stderr
