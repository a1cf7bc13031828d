"""Pushes files to a registry as layers of an image, as OCI's distribution specification has it.

usage: push_rule.py ADDRESS REPOSITORY TAG MEDIA_TYPE=FILE...
"""

import hashlib
import json
import sys
import urllib.parse
import urllib.request

address, repository, tag, *layers = sys.argv[1:]


def send(method, url, body=b"", content_type="application/octet-stream"):
    request = urllib.request.Request(url, body, {"Content-Type": content_type}, method=method)
    return urllib.request.urlopen(request)


def push(data, media_type):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    started = send("POST", f"http://{address}/v2/{repository}/blobs/uploads/")
    location = urllib.parse.urljoin(started.url, started.headers["Location"])
    send("PUT", f"{location}&digest={digest}", data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


pushed = []
for layer in layers:
    media_type, _, path = layer.partition("=")
    with open(path, "rb") as file:
        pushed.append(push(file.read(), media_type))
manifest = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": push(b"{}", "application/vnd.wasm.config.v0+json"),
    "layers": pushed,
}
url = f"http://{address}/v2/{repository}/manifests/{tag}"
send("PUT", url, json.dumps(manifest).encode(), manifest["mediaType"])
print(pushed[0]["digest"])
