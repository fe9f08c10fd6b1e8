import asyncio
import json
import re

import pytest
from conformance.asgi import Exchange

from hailmesh.hail.errors import Overloaded
from hailmesh.mesh.api.app import create_app
from hailmesh.mesh.api.ports import ApiSettings

pytestmark = pytest.mark.anyio


async def test_units_are_listed_and_shown(client):
    units = (await client.get("/v1/units")).json()["units"]
    assert [unit["name"] for unit in units] == ["vision", "llm", "asr"]
    assert (await client.get("/v1/units/llm")).json()["modality"] == "text"
    missing = await client.get("/v1/units/nobody")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "not_found"


async def test_plugging_a_unit(client, node, admin):
    answer = await client.post("/v1/units", json={"ref": "tracker"}, headers=admin)
    assert answer.status_code == 201
    assert answer.json()["state"] == "active"
    assert node.unit("tracker")["session_lived"]


@pytest.mark.parametrize(
    ("body", "status"), [({"ref": "nothing"}, 404), ({}, 400), ({"ref": 7}, 400), ([], 400)]
)
async def test_plugging_what_cannot_be_plugged(client, admin, body, status):
    assert (await client.post("/v1/units", json=body, headers=admin)).status_code == status


async def test_unplugging_a_unit_with_a_time_to_drain(client, node, admin):
    assert (await client.delete("/v1/units/asr?drain=2.5", headers=admin)).status_code == 200
    assert node.unplugged == [("asr", 2.5)]
    assert (await client.delete("/v1/units/asr", headers=admin)).status_code == 404


@pytest.mark.parametrize("drain", ["soon", "-1", "nan", "inf"])
async def test_a_senseless_time_to_drain_is_refused(client, node, admin, drain):
    assert (await client.delete(f"/v1/units/asr?drain={drain}", headers=admin)).status_code == 400
    assert node.unplugged == []


async def test_logs(client, admin):
    answer = await client.get("/v1/units/llm/logs", headers=admin)
    assert answer.json()["lines"][0]["line"] == "hello"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/units"), ("DELETE", "/v1/units/llm"), ("GET", "/v1/units/llm/logs")],
)
@pytest.mark.parametrize(
    "authorization", [None, "Bearer wrong", "Basic admin-token", "Bearer ", "admin-token"]
)
async def test_management_needs_the_admin_token_also_on_loopback(client, node, method, path, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = await client.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "admin token" in answer.json()["error"]["message"]
    assert node.unplugged == []


async def test_a_node_with_an_empty_admin_token_cannot_be_managed(node, client_of):
    client = client_of(create_app(node, ApiSettings("127.0.0.1", 8080, 1 << 20, "")))
    answer = await client.delete("/v1/units/llm", headers={"Authorization": "Bearer "})
    assert answer.status_code == 401


@pytest.fixture
def keyed(node, client_of):
    settings = ApiSettings("127.0.0.1", 8080, 1 << 20, "admin-token", ("key-one", "key-two"))
    return client_of(create_app(node, settings))


async def test_with_keys_inference_needs_one(keyed, node):
    for key, status in ((None, 401), ("key-three", 401), ("key-two", 200), ("admin-token", 200)):
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        answer = await keyed.post("/v1/invoke?modalities=image", content=b"x", headers=headers)
        assert answer.status_code == status
    assert node.requests[0].tenant not in ("", "key-two")
    assert node.requests[1].tenant == "admin"


async def test_an_api_key_does_not_manage(keyed):
    answer = await keyed.delete("/v1/units/llm", headers={"Authorization": "Bearer key-one"})
    assert answer.status_code == 401


async def test_with_keys_each_family_refuses_in_its_own_shape(keyed):
    chat = await keyed.post("/v1/chat/completions", json={})
    assert chat.json()["error"]["code"] == "invalid_api_key"
    v2 = await keyed.get("/v2/models/vision")
    assert isinstance(v2.json()["error"], str)


async def test_health_needs_no_key(keyed):
    for path in ("/healthz", "/readyz", "/v2/health/live", "/docs"):
        assert (await keyed.get(path)).status_code == 200


async def test_readiness_follows_the_node(client, node):
    assert (await client.get("/readyz")).status_code == 200
    node.ready = False
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/healthz")).status_code == 200


async def test_the_node_describes_itself(client):
    assert (await client.get("/v1/node")).json()["ready"] is True


async def test_events_come_as_they_happen_until_the_client_leaves(app, node):
    exchange = Exchange(app, "GET", "/v1/events")
    await exchange.until(lambda: node.listeners)
    await node.plug("tracker")
    await exchange.until(lambda: b"tracker" in exchange.body)
    exchange.leave()
    await exchange.finished()
    data = exchange.body.decode().split("data: ")[1]
    assert json.loads(data)["state"] == "active"
    assert node.listeners == 0


async def test_metrics_tell_requests_stages_sheds_and_the_arena(client, node):
    await client.post("/v1/invoke?modalities=image", content=b"x")
    node.failing["vision"] = Overloaded("busy")
    await client.post("/v1/invoke?modalities=image", content=b"x")
    node.failing.clear()
    node.hold = asyncio.Event()
    await client.post("/v1/invoke?modalities=image", content=b"x", headers={"X-Deadline-Ms": "10"})
    text = (await client.get("/metrics")).text
    labels = '{class="interactive",outcome="%s",unit="vision"}'
    assert f"hailmesh_requests_total{labels % 'ok'} 1.0" in text
    assert f"hailmesh_requests_total{labels % 'overloaded'} 1.0" in text
    assert 'hailmesh_sheds_total{class="interactive",unit="vision"} 1.0' in text
    assert 'hailmesh_deadline_misses_total{budget="total",class="interactive",unit="vision"} 1.0' in text
    assert 'hailmesh_stage_seconds_count{class="interactive",stage="kernel",unit="vision"} 1.0' in text
    assert 'hailmesh_stage_seconds_sum{class="interactive",stage="kernel",unit="vision"} 0.0005' in text
    assert 'hailmesh_requests_in_progress{unit="vision"} 0.0' in text
    size = re.search(r'hailmesh_arena_bytes{kind="size"} (\S+)', text)
    assert float(size[1]) == 64 << 20
    assert 'hailmesh_unit_up{state="active",unit="llm",version="1.0.0"} 1.0' in text
    assert 'hailmesh_worker_restarts_total{unit="llm"} 0.0' in text


async def test_the_openapi_document_lists_every_endpoint(client):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert {"get", "post"} <= set(document["paths"]["/v1/units"])
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    assert document["paths"]["/v1/units"]["post"]["security"] == [{"admin": []}]


async def test_the_documentation_page_fetches_nothing_from_elsewhere(client):
    answer = await client.get("/docs")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "/v1/chat/completions" in answer.text
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import|url\(""", answer.text)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/invoke", 405),
        ("GET", "/v2/nowhere", 404),
        ("GET", "/v1/chat/completions", 405),
    ],
)
async def test_paths_that_do_not_exist_answer_in_the_shape_of_their_family(client, method, path, status):
    answer = await client.request(method, path)
    body = answer.json()
    assert answer.status_code == status
    assert "detail" not in body
    if path.startswith("/v2"):
        assert isinstance(body["error"], str)
    else:
        assert body["error"]["message"]


async def test_a_fault_of_the_nodes_own_is_a_500_that_tells_no_secrets(client, node):
    node.describe = lambda: 1 / 0
    answer = await client.get("/v1/node")
    assert answer.status_code == 500
    assert "division" not in answer.text


async def test_head_has_no_body(client):
    answer = await client.head("/healthz")
    assert (answer.status_code, answer.content) == (200, b"")
