"""The command line: parse, call, print. One small file per command; heavy imports happen inside the commands."""

from typing import Any


def __getattr__(name: str) -> Any:
    # Imported when first used: the commands of other packages import `ccr.cli.common` while `commands` collects them.
    if name in ("app", "main"):
        from ccr.cli import commands

        return getattr(commands, name)
    raise AttributeError(f"module 'ccr.cli' has no attribute {name!r}")
