#!/usr/bin/env python3
"""cri.py SOCKET COMMAND ...: the calls that a kubelet makes, for tests: as crictl, which Debian 12 has not.

pod NAME HANDLER [KEY=VALUE...]                 runs a pod with these annotations, prints its id
container POD IMAGE [KEY=VALUE...] -- PROGRAM...  starts a container in it, prints its id; keys: memory, user,
                                                 readonly, and the annotations of the pod, once more: dev.*
exec ID PROGRAM...                              runs a program in it, and ends as that does
status ID, stats ID, update ID MEMORY, stop ID SECONDS, rm ID, stop-pod ID, rm-pod ID

Messages are put together by their fields' numbers, as in the api.proto of k8s.io/cri-api v1.
"""
import sys

import grpc


def encode(value):
    """A message: a dictionary from a field's number to an integer, text, message, or a list of those."""
    out = b""
    for field, content in value.items():
        for item in content if isinstance(content, list) else [content]:
            if isinstance(item, int):
                out += varint(field << 3) + varint(item)
                continue
            item = encode(item) if isinstance(item, dict) else item.encode()
            out += varint(field << 3 | 2) + varint(len(item)) + item
    return out


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def decode(data):
    """A message: a dictionary from a field's number to the last integer or bytes in it."""
    def number(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at

    out, at = {}, 0
    while at < len(data):
        key, at = number(at)
        if key & 7 == 0:
            out[key >> 3], at = number(at)
        elif key & 7 == 2:
            size, at = number(at)
            out[key >> 3] = data[at:at + size]
            at += size
        else:
            raise ValueError(f"wire type {key & 7}")
    return out


def call(name, message):
    method = channel.unary_unary(f"/runtime.v1.RuntimeService/{name}")
    return decode(method(encode(message), timeout=30))


def pairs(words):
    return [{1: key, 2: value} for key, value in (word.split("=", 1) for word in words)]


def pod_config(name, annotations):
    node = {1: 2, 2: 1, 3: 1}  # the host's network, a pid and an ipc namespace for each container
    return {1: {1: name, 2: name, 3: "default", 4: 0}, 3: "/run/logs", 7: pairs(annotations),
            8: {2: {1: node}}}


def main(command, *words):
    if command == "pod":
        name, handler, *annotations = words
        answer = call("RunPodSandbox", {1: pod_config(name, annotations), 2: handler})
        print(answer[1].decode())
    elif command == "container":
        at = words.index("--")
        pod, image, *options = words[:at]
        given = dict(option.split("=", 1) for option in options)
        config = {1: {1: "one"}, 2: {1: image}, 3: list(words[at + 1:]), 11: "log",
                  15: {1: {4: int(given.get("memory", 0))},
                       2: {3: {1: 2, 2: 1}, 7: int("readonly" in given)}}}
        if "user" in given:
            config[15][2][5] = {1: int(given["user"])}
        annotations = [option for option in options if option.startswith("dev.")]
        message = {1: pod, 2: config, 3: pod_config("pod", annotations)}
        container = call("CreateContainer", message)[1].decode()
        print(container)
        call("StartContainer", {1: container})
    elif command == "exec":
        answer = call("ExecSync", {1: words[0], 2: list(words[1:]), 3: 20})
        sys.stdout.write(answer.get(1, b"").decode())
        sys.stderr.write(answer.get(2, b"").decode())
        return answer.get(3, 0)
    elif command == "status":
        status = decode(call("ContainerStatus", {1: words[0]})[1])
        state = ["created", "running", "exited", "unknown"][status.get(3, 0)]
        print(state, status.get(7, 0), status.get(10, b"").decode())
    elif command == "stats":
        memory = decode(decode(call("ContainerStats", {1: words[0]})[1])[3])
        print("memory", decode(memory[2])[1])
    elif command == "update":
        call("UpdateContainerResources", {1: words[0], 2: {4: int(words[1])}})
    elif command == "stop":
        call("StopContainer", {1: words[0], 2: int(words[1])})
    else:
        names = {"rm": "RemoveContainer", "stop-pod": "StopPodSandbox", "rm-pod": "RemovePodSandbox"}
        call(names[command], {1: words[0]})
    return 0


channel = grpc.insecure_channel(f"unix://{sys.argv[1]}")
try:
    sys.exit(main(*sys.argv[2:]))
except grpc.RpcError as error:
    sys.exit(f"{error.code().name}: {error.details()}")
