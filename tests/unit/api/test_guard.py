import pytest

from hailmesh.mesh.api.app import create_app
from hailmesh.mesh.api.ports import ApiSettings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "LOCALHOST", "[::1]:9000", "127.0.0.1:1"])
async def test_names_of_the_loopback_are_let_in(client, host):
    assert (await client.get("/healthz", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[", ""])
async def test_a_rebound_name_is_kept_out(client, host):
    answer = await client.get("/healthz", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "denied"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:9999", "null", "http://["])
async def test_a_foreign_page_is_kept_out(client, node, origin):
    answer = await client.post("/v1/invoke?modalities=image", content=b"x", headers={"Origin": origin})
    assert answer.status_code == 403
    assert node.requests == []


async def test_the_nodes_own_pages_are_let_in(client):
    answer = await client.get("/v1/units", headers={"Origin": "http://127.0.0.1:8080"})
    assert answer.status_code == 200


async def test_a_refusal_keeps_the_familys_shape(client):
    answer = await client.get("/v2", headers={"Host": "evil.example"})
    assert isinstance(answer.json()["error"], str)


async def test_a_node_for_other_machines_takes_any_name_but_no_foreign_page(node, client_of):
    client = client_of(create_app(node, ApiSettings("0.0.0.0", 8080, 1 << 20, "t", ("k",))))
    assert (await client.get("/healthz", headers={"Host": "box.local"})).status_code == 200
    foreign = {"Host": "box.local", "Origin": "http://evil.example"}
    assert (await client.get("/healthz", headers=foreign)).status_code == 403
