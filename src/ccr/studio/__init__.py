"""The studio: look, ask, correct and refit in the browser. `ccr studio` runs it; `show` puts it into a notebook."""

from importlib.util import find_spec

from ccr.errors import MissingExtraError

_missing = [name for name in ("fastapi", "uvicorn", "jinja2") if find_spec(name) is None]
if _missing:
    raise MissingExtraError(f'the studio needs {", ".join(_missing)}: pip install "ccr-xai[studio]"')

from ccr.studio.serving import Running, serve, show  # noqa: E402 (after the check of what it needs)

__all__ = ["Running", "serve", "show"]
