#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# two_machines.sh PROGRAM [OPTION...]: runs a selftest on this machine and on the one that
# "node2 CMD" reaches, side 0 of the test here and side 1 there (preload/two). Prints the
# results of this machine, and what the other one said if it failed.

here=$(cd "$(dirname "$0")" && pwd)
[[ -x $here/stock_mr ]] || here=$(dirname "$here")
(($# > 0)) || { echo "usage: two_machines.sh PROGRAM [OPTION...]" >&2; exit 2; }
type -t node2 >/dev/null || { echo "Bail out! no second machine: start two with NODES=2"; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
cd "$here" || exit
# Both draw the same numbers. Addresses are not random, so static memory is at the same place.
settings=(LD_PRELOAD="$here/two_machines.so"
	MKEY_TEST_SEED="${MKEY_TEST_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}"
	MKEY_TEST_QUICK="${MKEY_TEST_QUICK-}" MKEY_TEST_LAYOUTS="${MKEY_TEST_LAYOUTS:-}"
	MKEY_TEST_PEER="${MKEY_TEST_PEER:-10.0.1.2}")
[[ -n ${MKEY_TEST_LAYOUTS-} ]] || unset 'settings[3]'
run=(env -i PATH="$PATH" setarch -R env "${settings[@]}")
command=$(printf '%q ' "${run[@]}" MKEY_TEST_NODE=2 "./$1" "${@:2}")

node2 "cd $(printf %q "$here") && $command" >"$log" 2>&1 &
peer=$!
rc=0 there=0
"${run[@]}" MKEY_TEST_NODE=1 "./$1" "${@:2}" || rc=$?
wait "$peer" || there=$?
if ((rc != there || (rc != 0 && rc != 4))); then
	echo "# machine 2 ended with status $there:"
	tail -n 100 "$log" | sed 's/^/#   /'
	((rc != 0)) || rc=1
fi
exit "$rc"
