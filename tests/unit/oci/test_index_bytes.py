from __future__ import annotations

import json
from typing import Any

import pytest

from hailmesh.hail.errors import ImageError
from hailmesh.oci.descriptor import Descriptor, Platform
from hailmesh.oci.index import Index, Manifest, decode, encode

DIGEST = "sha256:" + "ab" * 32


def test_an_index_is_compact_and_ordered_as_other_tools_rewrite_it() -> None:
    child = Descriptor("x/y", DIGEST, 5, {"b": "2", "a": "1"}, Platform("wasm", "wasip1"))
    assert Index((child,), {"z": "26", "n": "14"}).encode() == (
        b'{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":['
        b'{"mediaType":"x/y","digest":"' + DIGEST.encode() + b'","size":5,'
        b'"annotations":{"a":"1","b":"2"},"platform":{"architecture":"wasm","os":"wasip1"}}],'
        b'"annotations":{"n":"14","z":"26"}}'
    )


def test_a_manifest_keeps_its_artifact_type_and_an_image_has_none() -> None:
    part = Descriptor("x/y", DIGEST, 5)
    model = json.loads(Manifest(part, (part,), "model/type").encode())
    assert list(model) == ["schemaVersion", "mediaType", "artifactType", "config", "layers"]
    assert "artifactType" not in json.loads(Manifest(part, (part,)).encode())


def test_text_is_escaped_as_go_does_it() -> None:
    assert encode({"t": 'a<b>&é\u2028"\n'}) == '{"t":"a\\u003cb\\u003e\\u0026é\\u2028\\"\\n"}'.encode()


@pytest.mark.parametrize("document", [Index((), {"a": "1"}), Index((Descriptor("x/y", DIGEST, 0),))])
def test_an_index_reads_back_as_it_was(document: Index) -> None:
    again = Index.decode(document.encode(), "it")
    assert (list(again.manifests), again.annotations) == (list(document.manifests), document.annotations)


def test_what_other_tools_add_to_a_descriptor_is_ignored() -> None:
    document = {"mediaType": "x/y", "digest": DIGEST, "size": 5, "urls": ["u"], "artifactType": "t"}
    assert Descriptor.of(document) == Descriptor("x/y", DIGEST, 5)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "descriptor object"),
        ({"mediaType": "x/y", "size": 5}, "mediaType and digest"),
        ({"mediaType": "x/y", "digest": "sha256:12", "size": 5}, "expected a digest"),
        ({"mediaType": "x/y", "digest": DIGEST, "size": "5"}, "size in bytes"),
        ({"mediaType": "x/y", "digest": DIGEST, "size": -1}, "size in bytes"),
        ({"mediaType": "x/y", "digest": DIGEST, "size": True}, "size in bytes"),
        ({"mediaType": "x/y", "digest": DIGEST, "size": 5, "annotations": {"a": 1}}, "annotations"),
    ],
)
def test_a_malformed_descriptor_is_refused(document: Any, says: str) -> None:
    with pytest.raises(ImageError, match=says):
        Descriptor.of(document)


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_bytes_that_are_no_object_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(ImageError, match="the thing is not"):
        decode(data, "the thing")


def test_an_index_is_no_manifest_and_the_other_way_round() -> None:
    with pytest.raises(ImageError, match="expected an OCI image manifest"):
        Manifest.decode(Index(()).encode(), "it")
    part = Descriptor("x/y", DIGEST, 5)
    with pytest.raises(ImageError, match="expected an OCI image index"):
        Index.decode(Manifest(part, ()).encode(), "it")
    with pytest.raises(ImageError, match="no list 'manifests'"):
        Index.decode(b"{}", "it")
