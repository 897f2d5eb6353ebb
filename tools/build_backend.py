"""pip's way into the build: scikit-build-core, on Linux with glibc."""

import platform
import sys

if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
    sys.exit("pyxfer needs Linux with glibc, because NVIDIA's driver for CUDA does: it cannot be installed here.")

from scikit_build_core.build import *  # noqa: F403
