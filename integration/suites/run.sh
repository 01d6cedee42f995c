#!/usr/bin/env bash
# Usage: run.sh contest RUNTIME CONTEST RUNTIMETEST BUNDLE.tar.gz [GROUP...]
#        run.sh crun RUNTIME TESTS-DIRECTORY INIT [NAME...]
# Runs what others test their runtimes with, built elsewhere, against RUNTIME: youki's `contest`, one group a
# process, for a panic ends it; crun's `test_NAME.py`, each on a terminal of its own. Needs root, and python3.
# VIEW=v1 or VIEW=v2 shows version 1 or version 2 of cgroups alone, on a host that has both.
#
# Prints a line a case, `pass`, `fail` or `skip`, a group that did not come to its end as `fail`, and the sums.
# All is in a mount and a pid namespace of its own: where a runtime misbehaves, suites leave things behind.
set -uo pipefail

suite=${1:?usage: run.sh contest|crun RUNTIME ...} runtime=$(realpath -s "${2:?RUNTIME}")
shift 2
work=$(mktemp -d /var/tmp/landstrip-suites.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
export TMPDIR=$work RUST_BACKTRACE=0

case ${VIEW:-host} in
    host) view=: ;;
    v1) view='umount /sys/fs/cgroup/unified' ;;
    v2) view='umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup' ;;
    *) echo "VIEW: v1 and v2 are known" >&2; exit 2 ;;
esac
alone() { # NAME COMMAND...
    local out=$work/out
    (mkdir "$work/$1" && cd "$work/$1" && timeout --kill-after=2 120 \
        unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
        sh -c "$view"' && exec "$@"' sh "${@:2}") > "$out" 2>/dev/null < /dev/null
    python3 -c "$sum" "$1" < "$out"
}
# shellcheck disable=SC2016 # It is Python.
sum='
import re, sys
group, text = sys.argv[1], sys.stdin.read().replace("\r", "")
cases = re.findall(r"^\d+ / \d+ : (.*) : (ok|not ok|skipped)$", text, re.M)
cases += [(name, "skipped" if "#SKIP" in rest else how)
          for how, name, rest in re.findall(r"^(not ok|ok) \d+ - (\S+)(.*)$", text, re.M)]
for name, how in cases:
    print({"ok": "pass", "not ok": "fail", "skipped": "skip"}[how], group, name)
plan = re.search(r"^1\.\.(\d+)$", text, re.M)
if len(cases) < (int(plan[1]) if plan else 0 if "# End group" in text else len(cases) + 1):
    print("fail", group, "(did not end)")
'

{
    if [ "$suite" = contest ]; then
        contest=$(realpath "${1:?CONTEST}") test=$(realpath "${2:?RUNTIMETEST}") bundle=$(realpath "${3:?BUNDLE}")
        shift 3
        cp "$bundle" "$work/bundle.tar.gz"
        [ $# -gt 0 ] || mapfile -t groups < <(cd "$work" && "$contest" list)
        for group in "${@:-${groups[@]}}"; do
            # It looks for the bundle where it is started.
            alone "$group" sh -c 'ln ../bundle.tar.gz . && exec "$@"' sh "$contest" run \
                --runtime "$runtime" --runtimetest "$test" -t "$group"
        done
    else
        tests=$(realpath "${1:?TESTS-DIRECTORY}") init=$(realpath "${2:?INIT}")
        shift 2
        export INIT=$init OCI_RUNTIME=$runtime CGROUP_MANAGER=${CGROUP_MANAGER:-cgroupfs}
        [ $# -gt 0 ] || mapfile -t groups < <(cd "$tests" && ls test_*.py | sed 's/^test_\(.*\)\.py$/\1/')
        for group in "${@:-${groups[@]}}"; do
            alone "$group" python3 -c 'import pty, sys; sys.exit(pty.spawn(["python3", sys.argv[1]]))' \
                "$tests/test_$group.py"
        done
    fi
} | tee "$work/table"
echo "$suite: $(cut -d' ' -f1 "$work/table" | sort | uniq -c | tr -s '\n ' ' ')"
