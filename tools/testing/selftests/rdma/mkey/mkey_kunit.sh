#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The module's KUnit tests: code that needs no device. KUnit runs them when the
# module is loaded. This script runs each suite once more and reports each case.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

SUITES=(ib_mkey_pins ib_mkey_rebind ib_mkey_binding ib_mkey_window ib_mkey_window_bind ib_mkey_dm_class ib_mkey_account
	ib_mkey_owner ib_mkey_worker rust_counted_cell rust_spare rust_srcu)
kunit=/sys/kernel/debug/kunit

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
[[ -d /sys/module/kunit ]] || skip_all "this kernel has no KUnit (CONFIG_KUNIT=y)"
# Rust's tests are compiled in only if KUnit is built in.
[[ ! -e /sys/module/kunit/refcnt ]] || skip_all "KUnit is a module; CONFIG_KUNIT=y is needed"
[[ -d $kunit ]] || skip_all "KUnit shows no results (CONFIG_KUNIT_DEBUGFS=y)"

# A suite prints its plan, each case with its failed assertions, and the sum.
results=$(mktemp)
trap 'rm -f "$results"' EXIT
missing=()
for suite in "${SUITES[@]}"; do
	if [[ -e $kunit/$suite/run ]] && echo 1 >"$kunit/$suite/run"; then
		sed "s/^/$suite /" "$kunit/$suite/results" >>"$results"
	else
		missing+=("$suite")
	fi
done

CASE='^([a-z_]+) +(not )?ok [0-9]+ ([a-z_0-9]+)( #.*)?$'
names=()
while read -r line; do
	[[ $line =~ $CASE && ${BASH_REMATCH[3]} != "${BASH_REMATCH[1]}" ]] && names+=("${BASH_REMATCH[1]}: ${BASH_REMATCH[3]}")
done <"$results"

# passed NAME: fails, and shows what the suite said, unless the case passed
passed() {
	local suite=${1%%: *} name=${1#*: }
	grep -qE "^$suite +ok [0-9]+ $name\$" "$results" || {
		grep "^$suite " "$results"
		return 1
	}
}
# complete: fails unless each suite ran all of its cases
complete() {
	((${#missing[@]} == 0)) || { echo "no suite ${missing[*]}"; return 1; }
	local suite cases
	for suite in "${SUITES[@]}"; do
		cases=$(sed -nE "s/^$suite +1\\.\\.([0-9]+)\$/\\1/p" "$results" | tail -n 1)
		(($(grep -cE "^$suite +(not )?ok [0-9]+ " "$results") == cases + 1 && cases > 0)) || { echo "$suite is not complete"; return 1; }
	done
}

plan $((${#names[@]} + 1))
for name in "${names[@]}"; do check "$name" passed "$name"; done
check "all suites ran" complete
ktap_finished
