# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of the script place, which copies all files or none. Part of tests.
# shellcheck disable=SC2154,SC2317 # tests sets the variables; functions are called by check

# All or nothing: the last file does not fit, or cannot be replaced.
stage=$tmp/stage
mkdir -p "$stage"/{a/deep,z,share/x}
echo new >"$stage/a/deep/file"
head -c 200000 /dev/zero >"$stage/z/large"
printf '%s\n' a/deep/file z/large >"$stage/share/x/user.files"
full() {
	mkdir "$tmp/small"
	mount -t tmpfs -o size=100k tmpfs "$tmp/small" 2>"$tmp/err" || return
	! "$here/place" "$stage" "$tmp/small" share/x 2>"$tmp/err" &&
		grep -q "^ib_mkey: nothing was installed in $tmp/small: .*No space left" "$tmp/err" && [[ -z $(ls -A "$tmp/small") ]]
}
if ((EUID == 0)); then
	check "a disk that becomes full" full
else
	ktap_test_skip "a disk that becomes full (not root)"
fi
blocked() {
	mkdir -p "$tmp/held/z/large" "$tmp/held/a/deep"
	echo old >"$tmp/held/a/deep/file"
	! "$here/place" "$stage" "$tmp/held" share/x 2>"$tmp/err" && grep -q "z/large is a directory" "$tmp/err" &&
		[[ $(<"$tmp/held/a/deep/file") == old && ! -e $tmp/held/share ]] && ! find "$tmp/held" -name '*new' | grep .
}
check "a directory in the place of a file" blocked
interrupted() {
	local rc=0
	mkdir "$tmp/there"
	program cp "kill -TERM \$PPID; sleep 1; exit 1"
	"$here/place" "$stage" "$tmp/there" share/x 2>"$tmp/err" || rc=$?
	rm "$tmp/bin/cp"
	((rc != 0)) && grep -q "nothing was installed" "$tmp/err" && [[ -z $(ls -A "$tmp/there") ]]
}
check "an installation that is interrupted" interrupted
