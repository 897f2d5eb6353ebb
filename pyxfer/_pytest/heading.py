"""The line of pytest's header with the device and link of the measurements.

A separate process reads them, so that pytest's process makes no CUDA call before the first test: a test may still
choose its devices, or fork.
"""

from __future__ import annotations

import subprocess
import sys

from pyxfer._python import python_command

PATIENCE_S = 30.0
_BOOT = "from pyxfer._pytest.heading import main; main()"


def device_line(device: str | None) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and code of our own
            python_command(_BOOT, *([device] if device else [])),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"device unknown: {type(error).__name__}"
    return done.stdout.strip() or f"device unknown: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}"


def _line(device: str | None) -> str:
    from pyxfer._machine.devices import find_device
    from pyxfer._machine.link import read_link
    from pyxfer._report.text import clean, device_text, link_text
    from pyxfer.errors import CudaUnavailableError, PyxferError
    from pyxfer.native import choose, is_host_name

    try:
        engine = choose(device or 0, require_gpu=not is_host_name(device)).engine
        found = find_device(engine, device or 0)
        if found.runtime == "host":
            return device_text(found)
        return f"{device_text(found)}, {link_text(read_link(engine, found))}"
    except CudaUnavailableError as error:
        return f"no usable GPU (--xfer-device=host measures host memory): {error.hint}"
    except PyxferError as error:
        return clean(str(error))


def main() -> None:
    sys.stdout.write(_line(sys.argv[1] if len(sys.argv) > 1 else None) + "\n")
