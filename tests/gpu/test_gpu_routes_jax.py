"""Every route of JAX on a GPU: the right bytes, twice, in the right place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from route_checks import a_place, import_or_skip, verify

from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks.base import RefusedError
from pyxfer._frameworks.jax import FRAMEWORK
from pyxfer._frameworks.place import IMAGE_BYTES

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Make, Route
    from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
SIZES = (64 << 10, 3 << 20)
COPYING = [route for route in FRAMEWORK.routes if route.copy is not None and not route.setting]
BATCHING = [route for route in FRAMEWORK.routes if route.image_batch is not None]
# A backend reads the setting when it starts, so this needs a separate process.
UNSTAGED = """
import sys
from pyxfer.native import load
from pyxfer._frameworks.jax import FRAMEWORK
from route_checks import a_place, verify
started = FRAMEWORK.start(0, "nostage")
assert started.cuda.value, started.cuda.reason
(route,) = (route for route in FRAMEWORK.routes if route.setting == "nostage")
engine = load("cuda")
for nbytes in map(int, sys.argv[1:]):
    with a_place(engine, nbytes) as place:
        transfer = route.copy(place)
        for seed in (1, 2):
            seen = verify(transfer, place, engine, seed)
            assert seen.right and seen.where == "gpu", (nbytes, seed, seen.where)
print("both passes are right")
"""


@pytest.fixture(scope="module", autouse=True)
def _jax() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FRAMEWORK.environment.items():
            patch.setenv(name, value)
        import_or_skip("jax")
        started = FRAMEWORK.start(0, "")
        if started.cuda.value is None:
            pytest.skip(str(started.cuda.reason))
        yield


def check(route: Route, make: Make | None, engine: Engine, nbytes: int) -> None:
    assert make is not None
    with a_place(engine, nbytes) as place:
        transfer = make(place)
        for seed in (1, 2):
            seen = verify(transfer, place, engine, seed)
            assert seen.right, f"pass {seed}"
            assert seen.where == route.expected_place


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("route", COPYING, ids=lambda route: route.name)
def test_each_pass_of_a_copy_delivers_its_bytes(route: Route, nbytes: int, gpu_engine: Engine) -> None:
    check(route, route.copy, gpu_engine, nbytes)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("route", BATCHING, ids=lambda route: route.name)
def test_each_pass_of_an_image_batch_reads_its_row(route: Route, batch: int, gpu_engine: Engine) -> None:
    check(route, route.image_batch, gpu_engine, batch * IMAGE_BYTES)


def test_each_pass_without_staging_delivers_its_bytes(gpu_engine: Engine) -> None:
    assert gpu_engine.device_count() > 0
    environment = {**os.environ, **FRAMEWORK.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", UNSTAGED, *map(str, SIZES)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert ran.stdout.endswith("both passes are right\n"), ran.stderr


def test_a_missing_gpu_is_refused(gpu_engine: Engine) -> None:
    import jax

    missing = gpu_engine.device_count()
    with pytest.raises(RefusedError, match=f"^JAX does not see GPU {missing}, only 0$"):
        jax_transfers.find_gpu(jax, missing)
