"""`python -m pyxfer`, and what the installed command runs."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it as quietly as later."""
    try:
        from pyxfer._cli.failures import heed_interrupts

        heed_interrupts()  # the rest takes a while to load
        from pyxfer._cli.main import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception:  # noqa: BLE001 - an installation may lack anything, and 1 would say that something is slower
        import traceback

        traceback.print_exc()
        raise SystemExit(4) from None
    try:
        run()
    except KeyboardInterrupt:  # pressed so often that it fell between two answers
        os._exit(130)


if __name__ == "__main__":
    main()
