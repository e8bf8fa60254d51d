# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of the script place. Part of tests.
# shellcheck disable=SC2154,SC2317 # tests sets the variables; functions are called by check

stage=$tmp/stage
mkdir -p "$stage"/{a/deep,z,share/x}
echo new | tee "$stage/a/deep/file" >"$stage/z/last"
printf '%s\n' a/deep/file z/last >"$stage/share/x/user.files"
# installed ROOT: an earlier installation there, whose list has a file that the new one lacks
installed() {
	mkdir -p "$1/a/deep" "$1/z" "$1/share/x"
	printf '%s\n' share share/x >"$1/share/x/directories"
	printf '%s\n' a/deep/file a/gone z/last >"$1/share/x/user.files"
	tee "$1/a/deep/file" "$1/a/gone" "$1/z/last" <<<old >/dev/null
	content "$1" >"$tmp/earlier-${1##*/}"
}
unchanged() { content "$1" | diff "$tmp/earlier-${1##*/}" - >>"$tmp/err"; } # ROOT
blocked() {
	installed "$tmp/held"
	rm "$tmp/held/z/last" && mkdir "$tmp/held/z/last" && content "$tmp/held" >"$tmp/earlier-held" || return
	! "$here/place" share/x "$stage" "$tmp/held" 2>"$tmp/err" && grep -q "z/last is a directory" "$tmp/err" && unchanged "$tmp/held"
}
check "a directory in the place of a file" blocked
# A file that make install did not install is the administrator's, also in the second of two places.
foreign() {
	installed "$tmp/first" && installed "$tmp/foreign"
	sed -i /last/d "$tmp/foreign/share/x/user.files"
	content "$tmp/foreign" >"$tmp/earlier-foreign"
	! "$here/place" share/x "$stage" "$tmp/first" "$stage" "$tmp/foreign" 2>"$tmp/err" && unchanged "$tmp/first" && unchanged "$tmp/foreign" &&
		one_line "$tmp/foreign/z/last is there, and no list in $tmp/foreign/share/x names it: move it away"
}
check "a file that no list names" foreign
# What only an older version had, goes; what the list of another kernel has, stays.
others() {
	installed "$tmp/others"
	touch "$tmp/others/a/older"
	echo a/older >>"$tmp/others/share/x/user.files"
	echo a/gone >"$tmp/others/share/x/other.files"
	"$here/place" share/x "$stage" "$tmp/others" 2>"$tmp/err" && [[ -e $tmp/others/a/gone && ! -e $tmp/others/a/older && $(<"$tmp/others/a/deep/file") == new ]] &&
		[[ -z $(find "$tmp/others" -name '*.ib_mkey-*') ]]
}
check "a file that another list has" others
# fails WORDS: place fails at the last file, and says so
fails() {
	! "$here/place" share/x "$stage" "$tmp/cut" 2>"$tmp/err" && one_line "the installation in $tmp/cut failed: $1"
}
# After a failure all is removed, but not what the administrator has.
cut_off() {
	installed "$tmp/cut" && touch "$tmp/cut/z/mine"
	program mv "case \"\$*\" in */last) echo no space >&2; exit 1 ;; esac; exec /bin/mv \"\$@\""
	fails "no space; run the same command again, or make uninstall" || return
	rm "$tmp/bin/mv"
	cp -a "$tmp/cut" "$tmp/again"
	"$here/place" -r share/x "$tmp/cut" 2>"$tmp/err" && [[ $(cd "$tmp/cut" && find . ! -type d) == ./z/mine ]] || return
	"$here/place" share/x "$stage" "$tmp/again" 2>"$tmp/err" && [[ $(<"$tmp/again/z/last") == new && ! -e $tmp/again/a/gone ]]
}
check "an installation that failed can be removed, and repeated" cut_off
