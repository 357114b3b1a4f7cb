"""Commands of the studio and the service, which `ccr` finds by the entry point `ccr.commands`."""

from ccr_studio.commands import serve, studio

COMMANDS = (serve.serve, studio.studio)
