#!/usr/bin/env bash
# Usage: deps.sh PACKAGE... - sees to it that these Debian packages are installed.
# Installs what is missing as root; says what to install otherwise.
set -euo pipefail

if ! command -v dpkg-query >/dev/null; then
    echo "deps: not a Debian system; needed are the equivalents of: $*" >&2
    exit 0
fi
missing=()
for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "deps: missing packages; run: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o DPkg::Lock::Timeout=600 update
apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}"
