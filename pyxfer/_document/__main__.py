"""Print the JSON Schema of a kind of document: `python -m pyxfer._document KIND`. It makes docs/*.schema.json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from pyxfer._document import codec


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pyxfer._document", description="Print the JSON Schema of a kind of document."
    )
    structs = {kind.name: kind.struct for kind in codec.KINDS}
    parser.add_argument("kind", metavar="KIND", choices=structs, help=f"one of {', '.join(structs)}")
    made = codec.schema(structs[parser.parse_args(arguments).kind])
    sys.stdout.write(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
