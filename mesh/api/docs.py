"""`/docs`: the OpenAPI document as one page. It fetches nothing, so that it also works without a network."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}
details{border:1px solid #d0d7de;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}
code,pre{font:14px/1.45 ui-monospace,monospace}
pre{background:#f6f8fa;padding:.8rem;border-radius:6px;overflow:auto}
.method{display:inline-block;min-width:4.5rem;font-weight:600}
.lock{color:#9a6700}
"""


def page(document: dict[str, Any]) -> bytes:
    """HTML, UTF-8."""
    by_tag: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag[operation["tags"][0]].append(_operation(method.upper(), path, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(entries)}" for tag, entries in by_tag.items())
    info = document["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])} API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}"
        f' The same as <a href="/openapi.json">OpenAPI</a>.</p>{sections}</html>'
    ).encode()


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    needs_token = {"admin": []} in operation.get("security", [])
    lock = ' <span class="lock">needs the admin token</span>' if needs_token else ""
    parameters = "".join(
        f"<li><code>{entry['name']}</code> ({entry['in']}) {escape(entry.get('description', ''))}</li>"
        for entry in operation["parameters"]
    )
    bodies = "".join(
        f"<p><code>{media_type}</code></p><pre>{escape(json.dumps(content['schema'], indent=1))}</pre>"
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items()
    )
    return (
        f'<details><summary><span class="method">{method}</span> <code>{escape(path)}</code>'
        f" {escape(operation['summary'])}{lock}</summary>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        f"{f'<ul>{parameters}</ul>' if parameters else ''}{bodies}</details>"
    )
