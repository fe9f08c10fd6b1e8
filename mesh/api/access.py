"""Who may call: the admin token for management, API keys for inference."""

from __future__ import annotations

import hashlib
import hmac

from hailmesh.mesh.api.ports import ApiSettings
from hailmesh.mesh.errors import Unauthorized


def check(authorization: str | None, access: str, settings: ApiSettings) -> str:
    """The tenant of a call: "" without keys, "admin", or a short hash of the key. Unauthorized if the
    Authorization header doesn't carry what `access` ("infer" or "manage") needs."""
    if access == "infer" and not settings.api_keys:
        return ""
    secret = bearer(authorization)
    if secret and settings.admin_token and hmac.compare_digest(secret, settings.admin_token.encode()):
        return "admin"
    if access == "manage":
        raise Unauthorized("managing the node needs its admin token: send 'Authorization: Bearer TOKEN'")
    # Every key is compared, so that time says nothing about which one was near.
    found = [key for key in settings.api_keys if hmac.compare_digest(secret, key.encode())]
    if not found:
        raise Unauthorized("this node needs an API key: send 'Authorization: Bearer KEY'")
    return hashlib.sha256(found[0].encode()).hexdigest()[:12]


def bearer(authorization: str | None) -> bytes:
    """The secret of a Bearer header; empty if there is none."""
    scheme, _, secret = (authorization or "").partition(" ")
    return secret.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
