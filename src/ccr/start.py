"""Entry point of the command `ccr`: few imports, so that Ctrl-C works during the others.

Not a `__main__`: `python -m ccr` would put the current folder, with whatever lies there, on the path of imports.
"""

from __future__ import annotations

import sys

from ccr.utils import processes as interrupt


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 refused input, 2 misuse, 130 stopped."""
    try:
        interrupt.watch()
        from ccr.cli.commands import main as run

        run()
    except (Exception, KeyboardInterrupt):
        if not interrupt.interrupted():
            raise
        interrupt.report_stopped()  # whatever became of the interrupt on its way through an import
        sys.exit(interrupt.CODE)
