"""The OpenAPI document, made from the table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hailmesh.mesh.api.endpoint import Access, Endpoint
from hailmesh.mesh.api.shapes import Family

_TAGS = {Family.NATIVE: "hailmesh", Family.OPENAI: "OpenAI", Family.V2: "Open Inference Protocol"}
_TEXT = {"type": "string"}
_NATIVE_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": _TEXT,
                "message": _TEXT,
                "retry_after": {"type": "number", "description": "Seconds"},
                "predicted_ms": {"type": "number"},
            },
        }
    },
}
_ERRORS: dict[Family, dict[str, Any]] = {
    Family.NATIVE: _NATIVE_ERROR,
    Family.OPENAI: {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": _TEXT,
                    "type": _TEXT,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
    Family.V2: {"type": "object", "required": ["error"], "properties": {"error": _TEXT}},
}


def document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hailmesh",
            "version": version,
            "description": "Vision, language and speech units side by side, on one box.",
        },
        "tags": [{"name": name} for name in _TAGS.values()],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "admin": {"type": "http", "scheme": "bearer", "description": "The node's admin token"},
                "key": {"type": "http", "scheme": "bearer", "description": "An API key, if the node has any"},
            },
            "schemas": {f"{family.value}_error": schema for family, schema in _ERRORS.items()},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [_TAGS[endpoint.family]],
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint),
        "parameters": _parameters(endpoint),
        "responses": {
            "2XX": {
                "description": "Done",
                "content": {endpoint.answer: {"schema": {}}},
            },
            "default": {
                "description": "Refused or failed",
                "content": {
                    "application/json": {
                        "schema": {"$ref": f"#/components/schemas/{endpoint.family.value}_error"}
                    }
                },
            },
        },
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    if endpoint.access is Access.MANAGE:
        operation["security"] = [{"admin": []}]
    elif endpoint.access is Access.INFER:
        operation["security"] = [{}, {"key": []}]
    if endpoint.body:
        operation["requestBody"] = {
            "required": True,
            "content": {media_type: {"schema": schema} for media_type, schema in endpoint.body.items()},
        }
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", endpoint.path.replace("{", "by_").replace("}", ""))
    # The same path with a slash at its end is another operation.
    tail = ["slash"] if endpoint.path.endswith("/") else []
    return "_".join([endpoint.method.lower(), *words, *tail])


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "description": text, "schema": _TEXT}
        for name, text in endpoint.query.items()
    ]
    return parameters
