"""A fitted model behind a typed JSON API: what `ccr serve` runs, and what the studio is built on."""

from importlib.util import find_spec

from ccr.errors import MissingExtraError

_missing = [name for name in ("fastapi", "uvicorn", "python_multipart", "prometheus_client") if find_spec(name) is None]
if _missing:
    raise MissingExtraError(f'a server needs {", ".join(_missing)}: pip install "ccr-xai[serve]"')
