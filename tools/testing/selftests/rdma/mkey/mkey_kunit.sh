#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The module's KUnit tests: code that needs no device. KUnit runs them when the module is
# loaded. This script runs each suite once more and reports each case.
# needs: kunit

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

SUITES=(ib_mkey_pins ib_mkey_rebind ib_mkey_state ib_mkey_binding ib_mkey_window ib_mkey_dm_class ib_mkey_account
	ib_mkey_owner ib_mkey_worker rust_rcu_arc)
kunit=/sys/kernel/debug/kunit

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
[[ -d /sys/module/kunit ]] || skip_all "this kernel has no KUnit (CONFIG_KUNIT=y)"
# Rust's tests are compiled in only if KUnit is built in.
[[ ! -e /sys/module/kunit/refcnt ]] || skip_all "KUnit is a module; CONFIG_KUNIT=y is needed"
[[ -d $kunit ]] || skip_all "KUnit shows no results (CONFIG_KUNIT_DEBUGFS=y)"

# A suite prints its plan, each case with its failed assertions, and the sum. A process takes long
# on a kernel that checks itself, so the shell reads the results alone.
PLAN='^ *1\.\.([0-9]+)$'
CASE='^ *(not )?ok [0-9]+ ([a-z_0-9]+)( #.*)?$'
names=() failed=() incomplete=()
declare -A told
for suite in "${SUITES[@]}"; do
	if [[ ! -e $kunit/$suite/run ]] || ! echo 1 >"$kunit/$suite/run"; then
		incomplete+=("$suite: no such suite")
		continue
	fi
	cases=0 ended=0 sum=0
	while IFS= read -r line; do
		if [[ $line =~ $PLAN ]]; then
			# The plan of the suite follows that of the file.
			cases=${BASH_REMATCH[1]}
		elif [[ $line =~ $CASE && ${BASH_REMATCH[2]} == "$suite" ]]; then
			sum=1
		elif [[ $line =~ $CASE ]]; then
			ended=$((ended + 1))
			names+=("$suite: ${BASH_REMATCH[2]}")
			[[ -z ${BASH_REMATCH[1]} ]] || failed+=("${names[-1]}")
		fi
		told[$suite]+=$line$'\n'
	done <"$kunit/$suite/results"
	((ended == cases && cases > 0 && sum == 1)) || incomplete+=("$suite: $ended of $cases cases")
done

plan $((${#names[@]} + 1))
for name in "${names[@]}"; do
	if [[ " ${failed[*]} " == *" $name "* ]]; then
		diag "${told[${name%%: *}]}"
		ktap_test_fail "$name"
	else
		ktap_test_pass "$name"
	fi
done
if ((${#incomplete[@]} == 0)); then
	ktap_test_pass "all suites ran"
else
	diag "${incomplete[*]}"
	ktap_test_fail "all suites ran"
fi
ktap_finished
