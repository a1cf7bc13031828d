"""The command `corver-host`."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Replaces this process by the program inside the package."""
    program = str(Path(__file__).parent / "bin" / "corver-host")
    os.execv(program, [program, *sys.argv[1:]])
