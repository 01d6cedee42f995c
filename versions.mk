# What the project needs and Cargo.lock does not name: in this one place.

CARGO_DENY_VERSION := 0.20.2

# From PyPI, to link for macOS.
ZIG_VERSION := 0.15.2
CARGO_ZIGBUILD_VERSION := 0.24.0

# Debian packages: to build (a linker and static glibc), to test, to test on an older kernel, to test with engines,
# to compare speed with, to check for macOS and for Windows with.
BUILD_PACKAGES := gcc libc6-dev
TEST_PACKAGES := $(BUILD_PACKAGES) acl attr bash busybox-static crun curl git iproute2 netcat-openbsd openssh-client \
    openssl procps python3 python3-grpcio runc strace uidmap util-linux
VM_PACKAGES := $(BUILD_PACKAGES) binutils e2fsprogs mmdebstrap qemu-system-x86
ENGINE_PACKAGES := $(BUILD_PACKAGES) buildah busybox-static catatonit conmon containerd crun iproute2 iptables \
    netavark podman python3-grpcio python3-yaml runc slirp4netns uidmap util-linux
BENCH_PACKAGES := $(BUILD_PACKAGES) bubblewrap busybox-static crun git golang-github-containers-common grep runc
SOURCE_PACKAGES := $(BUILD_PACKAGES) cargo-web rust-web-clippy rust-web-src rustc-web
MACOS_PACKAGES := $(SOURCE_PACKAGES) python3 python3-pip
WINDOWS_PACKAGES := $(SOURCE_PACKAGES) gcc-mingw-w64-x86-64 wine wine64

# The Debian whose kernel is that older one (6.1), and what is installed in the virtual machine.
VM_SUITE := bookworm
VM_SYSTEM := dbus libpam-systemd linux-image-cloud-amd64 systemd-sysv udev \
    $(filter-out $(BUILD_PACKAGES), $(TEST_PACKAGES))
