"""pip's way into the build: scikit-build-core on Linux with glibc, and the page of the package index."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
    sys.exit("pyxfer needs Linux with glibc, because NVIDIA's driver for CUDA does: it cannot be installed here.")

from scikit_build_core.build import *  # noqa: E402, F403


class IndexPage:
    """README.md as the index shows it, and the addresses beside it.

    Its relative links lead to the tag in the repository that PYXFER_REPOSITORY names. `tools/release` sets that from
    git's remote; without it links stay as they are.
    """

    @staticmethod
    def dynamic_metadata(_settings: Mapping[str, object], project: Mapping[str, object]) -> dict[str, object]:
        text = Path("README.md").read_text("utf-8")
        repository = os.environ.get("PYXFER_REPOSITORY")
        if not repository:
            return {"readme": {"content-type": "text/markdown", "text": text}}
        tag = f"v{project['version']}"
        text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{repository}/raw/{tag}/", text)
        text = re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{repository}/blob/{tag}/", text)
        urls = {
            "Repository": repository,
            "Documentation": f"{repository}/blob/{tag}/README.md#documentation",
            "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
        return {"readme": {"content-type": "text/markdown", "text": text}, "urls": urls}
