#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The program of "make bench": runs each measurement once with small sizes, and checks
# all bytes but no times. Output that cannot be written is an error.
# sets: first

# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

bench=${MKEY_BENCH-}
[[ -n $bench ]] || bench=$(PATH=$here/../bin:$PATH command -v mkey_bench) ||
	skip_all "no mkey_bench; MKEY_BENCH= names it"
for i in 0 1; do
	[[ -n $(netdev_of $i) ]] || skip_all "no device ${dev[i]}"
done

# lost WHY FILE OPTION...: a run that writes to FILE ends with status 1 and says WHY
lost() {
	local said rc=0
	if [[ $2 == - ]]; then
		said=$("$bench" "${@:3}" 2>&1 >&-) || rc=$?
	else
		said=$("$bench" "${@:3}" 2>&1 >"$2") || rc=$?
	fi
	[[ $rc == 1 && $said == "mkey_bench: standard output: $1" ]] || { echo "status $rc: $said"; return 1; }
}

devices=(-a "${dev[0]}" -b "${dev[1]}")
ktap_print_header
check "help that cannot be written" lost "No space left on device" /dev/full -h
check "figures that cannot be written" lost "a part could not be written" /dev/full -r 1 -s 8 "${devices[@]}" dm
check "no standard output" lost "a part could not be written" - -r 1 -s 8 "${devices[@]}" dm

# The results of the program follow those above.
set -o pipefail
"$bench" -q "${devices[@]}" | awk -v before="$KTAP_TESTNO" '
	BEGIN { before-- }
	/^TAP version/ || /^# Totals/ { next }
	/^1\.\./ { $0 = "1.." substr($0, 4) + before }
	/^ok / { $2 += before }
	/^not ok / { $3 += before }
	{ print; fflush() }' || exit
((KTAP_CNT_FAIL == 0))
