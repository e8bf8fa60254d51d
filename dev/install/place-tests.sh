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
	! "$here/place" share/x "$stage" "$tmp/small" 2>"$tmp/err" &&
		grep -q "^ib_mkey: nothing was installed in $tmp/small: .*No space left" "$tmp/err" && [[ -z $(ls -A "$tmp/small") ]]
}
if ((EUID == 0)); then
	check "a disk that becomes full" full
else
	ktap_test_skip "a disk that becomes full (not root)"
fi
# installed ROOT: an earlier installation there, whose list has a file that the new one lacks
installed() {
	mkdir -p "$1/a/deep" "$1/z" "$1/share/x"
	printf '%s\n' share share/x >"$1/share/x/directories"
	printf '%s\n' a/deep/file a/gone z/large >"$1/share/x/user.files"
	tee "$1/a/deep/file" "$1/a/gone" "$1/z/large" <<<old >/dev/null
	content "$1" >"$tmp/earlier-${1##*/}"
}
unchanged() { content "$1" | diff "$tmp/earlier-${1##*/}" - >>"$tmp/err"; } # ROOT
blocked() {
	installed "$tmp/held"
	rm "$tmp/held/z/large" && mkdir "$tmp/held/z/large" && content "$tmp/held" >"$tmp/earlier-held" || return
	! "$here/place" share/x "$stage" "$tmp/held" 2>"$tmp/err" && grep -q "z/large is a directory" "$tmp/err" && unchanged "$tmp/held"
}
check "a directory in the place of a file" blocked
# The lists have so many files that a pipe cannot hold their names.
long_lists() {
	installed "$tmp/long"
	mv "$tmp/long/share/x/user.files" "$tmp/long/share/x/first.files"
	seq -f 'lib/some/module/number-%.0f' 20000 >"$tmp/long/share/x/other.files"
	"$here/place" share/x "$stage" "$tmp/long" 2>"$tmp/err" && [[ $(<"$tmp/long/a/deep/file") == new ]]
}
check "files that a long list names" long_lists
interrupted() {
	local rc=0
	mkdir "$tmp/there"
	program cp "kill -TERM 0; sleep 1"
	setsid -w "$here/place" share/x "$stage" "$tmp/there" 2>"$tmp/err" || rc=$?
	rm "$tmp/bin/cp"
	((rc != 0)) && grep -q "nothing was installed" "$tmp/err" && [[ -z $(ls -A "$tmp/there") ]]
}
check "an installation that is interrupted" interrupted

# Renaming fails at the last file, on which something is mounted, when others have been renamed.
# mounted ROOT...: the last ROOT has the mount
mounted() {
	local root rc=0
	local -a pairs=()
	for root; do
		installed "$root"
		pairs+=("$stage" "$root")
	done
	touch "$tmp/mount" && mount --bind "$tmp/mount" "$root/z/large" || return
	"$here/place" share/x "${pairs[@]}" 2>"$tmp/err" || rc=$?
	umount "$root/z/large" && sed -i "s, and , ," "$tmp/err" || return
	((rc)) && one_line "nothing was installed in $*: " && grep -q busy "$tmp/err" || return
	for root; do unchanged "$root" || return; done
}
# killed FILE: place is killed after it has renamed FILE
killed() {
	local rc=0
	rm -rf "$tmp/killed" && installed "$tmp/killed" && touch "$tmp/killed/z/mine" || return
	program mv "/bin/mv \"\$@\"; case \"\$*\" in */$1) kill -KILL 0 ;; esac"
	{ setsid -w "$here/place" share/x "$stage" "$tmp/killed" 2>"$tmp/err" || rc=$?; } 2>/dev/null
	rm "$tmp/bin/mv"
	((rc)) && [[ ! -s $tmp/err ]]
}
has_only() { [[ $(cd "$tmp/killed" && find . ! -type d | LC_ALL=C sort | xargs) == "$1" ]]; } # "FILE..."
cut_off() {
	local file
	for file in share/x/user.files a/deep/file z/large; do
		echo "# killed at $file"
		killed "$file" && "$here/place" -r share/x "$tmp/killed" 2>"$tmp/err" && has_only ./z/mine && [[ ! -e $tmp/killed/share ]] || return
		killed "$file" && "$here/place" share/x "$stage" "$tmp/killed" 2>"$tmp/err" && [[ $(<"$tmp/killed/a/deep/file") == new ]] &&
			has_only "./a/deep/file ./share/x/directories ./share/x/user.files ./z/large ./z/mine" || return
	done
}
if ((EUID == 0)); then
	check "a file on which something is mounted: all others are as before" mounted "$tmp/mounted"
	check "two places, and a mount in the second" mounted "$tmp/first" "$tmp/second"
else
	ktap_test_skip "a file on which something is mounted (not root)"
	ktap_test_skip "two places, and a mount in the second (not root)"
fi
check "an installation that was killed can be removed, and repeated" cut_off

# A file that make install did not install is the administrator's.
foreign() {
	installed "$tmp/foreign"
	sed -i /large/d "$tmp/foreign/share/x/user.files"
	content "$tmp/foreign" >"$tmp/earlier-foreign"
	! "$here/place" share/x "$stage" "$tmp/foreign" 2>"$tmp/err" && unchanged "$tmp/foreign" &&
		one_line "$tmp/foreign/z/large is there, and no list in $tmp/foreign/share/x names it: move it away"
}
check "a file that no list names" foreign
# What the list of another kernel has, stays.
others() {
	installed "$tmp/others"
	echo a/gone >"$tmp/others/share/x/other.files"
	"$here/place" share/x "$stage" "$tmp/others" 2>"$tmp/err" && [[ -e $tmp/others/a/gone && $(<"$tmp/others/a/deep/file") == new ]] &&
		[[ -z $(find "$tmp/others" -name '*.ib_mkey-*') ]]
}
check "a file that another list has" others
