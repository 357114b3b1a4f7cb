"""Buckets of object stores: pyarrow's file system for each, made from the environment alone, and its errors in words.

Credentials, region and endpoint come from the environment or the cloud's own files, never from a URL: a store or data
set from elsewhere must not choose to whom requests go.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import lru_cache
from typing import Any

from ccr.errors import UnreachableError
from ccr.texts import visible

#: In what pyarrow says when rights are missing.
REFUSED = (
    "ACCESS_DENIED",
    "HTTP status 403",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "ExpiredToken",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
)
#: How often Amazon's client tries by itself, after pauses of seconds.
AMAZON_TRIES = 5
#: How long Google's client tries by itself; it would be 15 minutes.
GOOGLE_TRIES = timedelta(seconds=20)


@lru_cache(maxsize=64)
def filesystem(scheme: str, bucket: str) -> Any:
    """The file system of a bucket, one in each process."""
    return _amazon(bucket) if scheme == "s3" else _google()


def words(error: Exception) -> str:
    """What an error says, short and harmless."""
    return visible(" ".join(str(error).split()))[:240]


def _amazon(bucket: str) -> Any:
    from pyarrow import fs

    options: dict[str, Any] = {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        options = {"endpoint_override": endpoint, "scheme": "http" if endpoint.startswith("http://") else "https"}
    elif not {"AWS_REGION", "AWS_DEFAULT_REGION"} & set(os.environ):
        options["region"] = _region(bucket)
    options["anonymous"] = _is_set("AWS_NO_SIGN_REQUEST")
    return fs.S3FileSystem(**options, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=AMAZON_TRIES))


def _google() -> Any:
    from pyarrow import fs

    endpoint = os.environ.get("STORAGE_EMULATOR_HOST", "")
    scheme, slashes, host = endpoint.rpartition("://")
    options: dict[str, Any] = {"anonymous": bool(endpoint) or _is_set("CLOUDSDK_AUTH_DISABLE_CREDENTIALS")}
    if endpoint:
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme if slashes else "http"}
    return fs.GcsFileSystem(**options, retry_time_limit=GOOGLE_TRIES)


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


def _region(bucket: str) -> str:
    from pyarrow import fs

    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError as error:
        raise UnreachableError(
            f"the region of the bucket {bucket!r} cannot be found ({words(error)}): set AWS_REGION, or "
            "AWS_ENDPOINT_URL for an object store that is not Amazon's"
        ) from None
