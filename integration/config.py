#!/usr/bin/python3
"""Checks what is shipped for engines: that it parses, that its keys are ones that the engines document, and that
all of it means one runtime under one name. containerd itself reads its part in containerd/test.sh, podman in
podman/test.sh."""
import fnmatch
import json
import pathlib
import tomllib

import yaml

config = pathlib.Path(__file__).resolve().parent.parent / "config"


def same(what, got, wanted):
    assert got == wanted, f"{what}: {got!r}, not {wanted!r}"


def known(what, table, keys):
    assert set(table) <= set(keys), f"{what}: unknown: {set(table) - set(keys)}"


toml = tomllib.loads((config / "containerd/landstrip.toml").read_text())
handlers = toml["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
(handler, containerd), = handlers.items()
known("containerd", containerd, ["runtime_type", "pod_annotations", "container_annotations", "options"])
known("containerd options", containerd["options"], ["BinaryName", "SystemdCgroup"])
same("containerd", containerd["runtime_type"], "io.containerd.runc.v2")
binary = containerd["options"]["BinaryName"]

crio = tomllib.loads((config / "crio/landstrip.conf").read_text())["crio"]["runtime"]["runtimes"]
same("CRI-O", list(crio), [handler])
# Not allowed_annotations: CRI-O takes none but its own there.
known("CRI-O", crio[handler], ["runtime_path", "runtime_type", "runtime_root"])
same("CRI-O", (crio[handler]["runtime_path"], crio[handler]["runtime_type"]), (binary, "oci"))

docker = json.loads((config / "docker/daemon.json").read_text())
same("Docker", docker, {"runtimes": {handler: {"path": binary}}})

podman = tomllib.loads((config / "containers.conf.d/landstrip.conf").read_text())["engine"]
assert binary in podman["runtimes"]["landstrip-oci"], "podman"

runtime_class = yaml.safe_load((config / "kubernetes/runtimeclass.yaml").read_text())
same("RuntimeClass", runtime_class, {
    "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
    "metadata": {"name": handler}, "handler": handler,
})
pod = yaml.safe_load((config / "kubernetes/pod.yaml").read_text())
same("pod", pod["spec"]["runtimeClassName"], handler)
for name in pod["metadata"]["annotations"]:
    for key in ("pod_annotations", "container_annotations"):
        assert any(fnmatch.fnmatch(name, glob) for glob in containerd[key]), f"{key}: {name}"
print("ok    what is shipped for engines")
