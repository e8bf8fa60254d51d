# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of scripts/rxe-source, with a kernel that has a short rxe and a series of two patches. Part
# of tests.
# shellcheck disable=SC2154,SC2317 # tests sets the variables

k=$tmp/linux rxe=drivers/infiniband/sw/rxe
mkdir -p "$k/$rxe" "$tmp/series/scripts" "$tmp/series/patches/rxe/7.3"
cp "$here/../../scripts/rxe-source" "$tmp/series/scripts/"
printf '%s\n' 'VERSION = 7' 'PATCHLEVEL = 2' 'SUBLEVEL = 9' >"$k/Makefile"
for f in rxe.c rxe_mw.c rxe_verbs.h Makefile; do echo "$f" >"$k/$rxe/$f"; done
# rxe_patch FILE FROM TO: a patch of one line.
rxe_patch() { printf '%s\n' "diff --git a/$rxe/$1 b/$rxe/$1" "--- a/$rxe/$1" "+++ b/$rxe/$1" '@@ -1 +1 @@' "-$2" "+$3"; }
series=$tmp/series/patches/rxe
echo 'Subject: [PATCH 0/2]' >"$series/0000-cover-letter.patch"
rxe_patch rxe_mw.c rxe_mw.c one >"$series/0001-one.patch"
{
	rxe_patch rxe_mw.c one two
	printf '%s\n' "diff --git a/$rxe/rxe_provider.c b/$rxe/rxe_provider.c" 'new file mode 100644' '--- /dev/null' \
		"+++ b/$rxe/rxe_provider.c" '@@ -0,0 +1 @@' '+new'
} >"$series/0002-two.patch"

rxe_source() { "$tmp/series/scripts/rxe-source" "$k" "$tmp/build" >"$tmp/out" 2>"$tmp/err" && [[ ! -s $tmp/out && ! -s $tmp/err ]]; }
# rxe_has FILE:LINE...: the files of rxe in the directory of the build, each of one line.
rxe_has() { rxe_source && diff <(cd "$tmp/build/$rxe" && grep '' -- * | LC_ALL=C sort) <(printf '%s\n' "$@") >"$tmp/err"; }
rxe_says() { # WORDS
	local rc=0
	"$tmp/series/scripts/rxe-source" "$k" "$tmp/build" >"$tmp/out" 2>"$tmp/err" || rc=$?
	[[ $rc == 1 && ! -s $tmp/out && $(<"$tmp/err") == "ib_mkey: $1" ]]
}

rxe_has Makefile:Makefile rxe.c:rxe.c rxe_mw.c:two rxe_provider.c:new rxe_verbs.h:rxe_verbs.h
result $? "rxe: the series is applied"
rxe_again() {
	touch -d 2000-01-01 "$tmp/build/$rxe"/*
	rxe_patch rxe_mw.c one other >"$series/0002-two.patch"
	rxe_has Makefile:Makefile rxe.c:rxe.c rxe_mw.c:other rxe_verbs.h:rxe_verbs.h &&
		[[ $(cd "$tmp/build/$rxe" && find . -type f -newermt 2001-01-01) == ./rxe_mw.c ]]
}
rxe_again
result $? "rxe: of another series only what differs is built again"
rxe_series() {
	sed -i 's/LEVEL = 2/LEVEL = 3/' "$k/Makefile"
	rxe_patch rxe_mw.c rxe_mw.c three >"$series/7.3/0001-another-name.patch"
	rxe_says "patches/rxe/0002-two.patch does not apply to rxe of Linux 7.3.9 ($k)" || return
	echo "Linux 7.3 has this change." >"$series/7.3/0002-two.patch"
	rxe_has Makefile:Makefile rxe.c:rxe.c rxe_mw.c:three rxe_verbs.h:rxe_verbs.h
}
rxe_series
result $? "rxe: a patch of one series of kernels, and one that is left out there"
rxe_refuses() {
	echo other >"$k/$rxe/rxe_mw.c"
	rxe_says "patches/rxe/7.3/0001-another-name.patch does not apply to rxe of Linux 7.3.9 ($k)" &&
		grep -q three "$tmp/build/$rxe/rxe_mw.c" && [[ ! -e $tmp/build/$rxe.tmp ]] || return
	mv "$k/$rxe/rxe.c" "$tmp/rxe.c"
	rxe_says "$k has no $rxe/rxe.c: rdma_rxe is built with ib_mkey, from the whole source of the kernel"
}
rxe_refuses
result $? "rxe: a patch that does not apply, and headers without the source, are named"
rxe_own() {
	touch "$k/$rxe/rxe_provider.h"
	rxe_source && [[ ! -e $tmp/build/$rxe ]]
}
rxe_own
result $? "rxe: nothing is built for a kernel that has the series"
