"""`python -m pyxfer`, and what the installed command runs."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it as quietly as later."""
    try:
        from pyxfer.cli.main import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    try:
        run()
    except KeyboardInterrupt:  # pressed so often that it fell between two answers
        os._exit(130)


if __name__ == "__main__":
    main()
