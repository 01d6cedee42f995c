#!/usr/bin/env python3
"""image.py ROOT NAME [PROGRAM...]: an image of a directory, as `docker save` writes it, to standard output."""
import hashlib, io, json, sys, tarfile

root, name, program = sys.argv[1], sys.argv[2], sys.argv[3:]
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as tar:
    tar.add(root, arcname=".")
layer = layer.getvalue()
config = json.dumps({
    "architecture": "amd64",
    "os": "linux",
    "config": {"Cmd": program or ["sh"], "Env": ["PATH=/bin"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
}).encode()
manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    for path, content in ("layer.tar", layer), ("config.json", config), ("manifest.json", manifest):
        entry = tarfile.TarInfo(path)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
