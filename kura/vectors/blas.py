"""How many threads numpy's matrix products use. To be settled before numpy is imported, so nothing here imports it."""

import os


def one_blas_thread() -> None:
    """Let matrix products run in the thread that asks for them, unless the environment says otherwise.

    Several threads of one product wait for each other on a shared or fractional core; what Kura computes side by side
    runs in threads of its own.
    """
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
