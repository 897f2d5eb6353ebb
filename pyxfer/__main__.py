"""`python -m pyxfer`, and the entry point of the installed command."""

from __future__ import annotations

import os


def main(default_map: dict[str, object] | None = None) -> None:
    """Run the command line. Ctrl-C during its import ends it as quietly as later.

    With a `default_map` the options have its defaults in place of those of the user's files.
    """
    try:
        from pyxfer._cli.failures import install_interrupt_handler

        install_interrupt_handler()  # before the slow imports
        from pyxfer._cli.main import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means that something became slower
        import traceback

        traceback.print_exc()
        raise SystemExit(4) from None
    try:
        run(default_map)
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was being handled
        os._exit(130)


if __name__ == "__main__":
    main()
