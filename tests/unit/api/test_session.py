import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from hailmesh.mesh.api.app import create_app
from hailmesh.mesh.api.ports import ApiSettings

NODE = "ws://127.0.0.1:8080"
PATH = f"{NODE}/v1/units/tracker/session"


@pytest.fixture
def tracker(node):
    node._add("tracker", session_lived=True)
    return node


@pytest.fixture
def browser(app, tracker):
    return TestClient(app)


def test_messages_reach_one_instance_in_order(browser):
    with browser.websocket_connect(PATH) as session:
        session.send_bytes(b"12345")
        first = session.receive_json()["result"]
        session.send_bytes(b"678")
        second = session.receive_json()["result"]
    assert (first["messages"], first["bytes"]) == (1, 5)
    assert (second["messages"], second["bytes"]) == (2, 8)
    assert second["unit"] == "tracker"


def test_a_description_holds_for_the_binary_messages_after_it(browser):
    with browser.websocket_connect(PATH) as session:
        session.send_json({"type": "audio/pcm", "params": {"rate": 16000}})
        session.send_bytes(b"12")
        result = session.receive_json()["result"]
    assert (result["type"], result["params"]) == ("audio/pcm", {"rate": 16000})


def test_inputs_may_come_as_json(browser):
    with browser.websocket_connect(PATH) as session:
        session.send_json({"inputs": {"speech": "AAAA"}, "params": {"a": 1}})
        result = session.receive_json()["result"]
    assert (result["bytes"], result["params"]) == (3, {"a": 1})


@pytest.mark.parametrize(
    "message", ["{", "[]", '{"inputs": {"speech": 7}}', '{"inputs": {}}', '{"params": 3}']
)
def test_a_bad_message_is_answered_and_the_session_goes_on(browser, message):
    with browser.websocket_connect(PATH) as session:
        session.send_text(message)
        refusal = session.receive_json()
        session.send_bytes(b"1")
        assert session.receive_json()["result"]["messages"] == 1
    assert refusal["status"] == 400
    assert refusal["error"]["code"] == "usage"


def test_a_unit_that_refuses_a_message_keeps_its_session(browser):
    with browser.websocket_connect(PATH) as session:
        session.send_bytes(b"")
        assert session.receive_json()["error"]["message"] == "an empty message"
        session.send_bytes(b"1")
        assert session.receive_json()["result"]["messages"] == 2


def test_a_message_over_the_limit_is_refused(browser, settings):
    with browser.websocket_connect(PATH) as session:
        session.send_bytes(bytes(settings.max_body + 1))
        assert session.receive_json()["status"] == 413


@pytest.mark.parametrize("path", ["/v1/units/llm/session", "/v1/units/nobody/session", "/v1/nowhere"])
def test_a_session_that_cannot_be_had_is_a_refused_handshake(browser, path):
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(NODE + path):
        pass


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
def test_a_foreign_page_gets_no_session(browser, headers):
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(PATH, headers=headers):
        pass


def test_with_keys_a_session_needs_one(tracker):
    app = create_app(tracker, ApiSettings("127.0.0.1", 8080, 1 << 20, "t", ("k",)))
    browser = TestClient(app)
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(PATH):
        pass
    with browser.websocket_connect(PATH, headers={"Authorization": "Bearer k"}) as session:
        session.send_bytes(b"1")
        assert "result" in session.receive_json()
