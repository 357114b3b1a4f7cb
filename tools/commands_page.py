"""docs/commands.md out of the commands themselves: `python -m tools.commands_page > docs/commands.md`."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from ccr.cli import app

HEADER = """# Commands

Made by `python -m tools.commands_page > docs/commands.md`; a test fails when it is out of date. `ccr COMMAND --help`
says the same. Exit codes: 0 success, 1 refused input, 2 misuse. With `--json` a command prints one JSON object on
stdout and nothing else. `ccr --install-completion` sets up completion for the shell.
"""


def commands_page() -> str:
    """The page as text."""
    group: Any = typer.main.get_command(app)
    return HEADER + _sections(group.commands)


def _sections(commands: dict[str, Any], before: str = "") -> str:
    """Of all commands, and of those inside a group like `ccr concepts`."""
    return "".join(
        _sections(command.commands, f"{before}{name} ")
        if hasattr(command, "commands")
        else _section(f"{before}{name}", command)
        for name, command in commands.items()
    )


def _section(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join(["ccr", name, *(_metavar(parameter) for parameter in arguments), "[OPTIONS]"])
    lines = [f"\n## ccr {name}\n", inspect.cleandoc(command.help or "") + "\n", f"```\n{usage}\n```\n"]
    lines += ["| | | default |", "|---|---|---|"]
    lines += [_row(parameter) for parameter in command.params if parameter.name not in ("help",)]
    return "\n".join(lines) + "\n"


def _metavar(argument: Any) -> str:
    shown = argument.metavar or argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return shown if argument.required else f"[{shown}]"


def _row(parameter: Any) -> str:
    option = parameter.param_type_name == "option"
    names = (
        ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
        if option
        else f"`{parameter.name}`"
    )
    given = parameter.default
    default = "" if parameter.required or given is None or given is False or given == "" else f"`{given}`"
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
    return f"| {names} | {text} | {'required' if parameter.required else default} |"


if __name__ == "__main__":
    print(commands_page(), end="")
