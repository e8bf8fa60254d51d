#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The program of "make bench": runs each measurement once with small sizes, and checks
# all bytes but no times.

# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

bench=${MKEY_BENCH-}
[[ -n $bench ]] || bench=$(PATH=$here/../bin:$PATH command -v mkey_bench) ||
	skip_all "no mkey_bench; MKEY_BENCH= names it"
for i in 0 1; do
	[[ -n $(netdev_of $i) ]] || skip_all "no device ${dev[i]}"
done

exec "$bench" -q -a "${dev[0]}" -b "${dev[1]}"
