"""README.md as the page of the package index, and the addresses beside it.

Relative links lead to the tag of the version in the repository that PYXFER_REPOSITORY names. `tools/release` takes that
from git's remote; without it, links stay as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path


def absolute(text: str, repository: str, tag: str) -> str:
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{repository}/raw/{tag}/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{repository}/blob/{tag}/", text)


def dynamic_metadata(_settings: Mapping[str, object], project: Mapping[str, object]) -> dict[str, object]:
    text, urls = Path("README.md").read_text("utf-8"), {}
    if repository := os.environ.get("PYXFER_REPOSITORY"):
        tag = f"v{project['version']}"
        text = absolute(text, repository, tag)
        urls = {
            "Repository": repository,
            "Documentation": f"{repository}/tree/{tag}/docs",
            "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
    return {"readme": {"content-type": "text/markdown", "text": text}, "urls": urls}
