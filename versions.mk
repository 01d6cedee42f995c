# What the project needs and Cargo.lock does not name: in this one place.

CARGO_DENY_VERSION := 0.20.2

# Debian packages: to build (a linker and static glibc), to test, to test with podman, to compare speed with.
BUILD_PACKAGES := gcc libc6-dev
TEST_PACKAGES := $(BUILD_PACKAGES) acl attr bash busybox-static curl git procps python3 strace uidmap util-linux
PODMAN_PACKAGES := $(BUILD_PACKAGES) busybox-static conmon crun iptables netavark podman uidmap
BENCH_PACKAGES := $(BUILD_PACKAGES) bubblewrap busybox-static crun git golang-github-containers-common grep runc
