#!/usr/bin/env bash
# Usage: as-user.sh HOME PROGRAM ARG... - runs it as nobody, with a home and temporary directory.
set -euo pipefail

export HOME=$1 TMPDIR=$1 USER=nobody LOGNAME=nobody
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
shift
exec setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps=-all -- "$@"
