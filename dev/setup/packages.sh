#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# packages.sh NAME PACKAGE...: unpacks Debian's packages, and what they need and the builder root lacks,
# into out/NAME/root, and prints out/NAME. In a guest, dev/vm/guest/with-packages lays them over the root.

# shellcheck source=dev/setup/config.sh
source "$(dirname "${BASH_SOURCE[0]}")/config.sh"

# keep NAME WHAT TIME KEY COMMAND...: makes out/NAME by COMMAND, unless KEY is that of the last time, and
# prints it
keep() {
	local dir=$TOP/out/$1
	if [[ $(cat "$dir/key" 2>/dev/null) != "$4" ]]; then
		rm -rf "$dir"
		mkdir -p "$dir"
		LOGS=$TOP/out/log step "$1" "$2" "$3" "${@:5}"
		printf '%s' "$4" >"$dir/key"
	fi
	printf '%s\n' "$dir"
}
# unpack DIR PACKAGE...: into DIR, by an apt that knows what the root has, and keeps its own files in DIR.apt
unpack() {
	local dir=$1 deb
	local apt=(inroot apt-get -o Dir::State="$1.apt" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$1.apt"
		-o Debug::NoLocking=true -o APT::Sandbox::User=root)
	mkdir -p "$dir"/{usr,etc,var} "$dir.apt"/{lists,archives}/partial
	"${apt[@]}" update
	"${apt[@]}" install --yes --download-only --no-install-recommends "${@:2}"
	for deb in "$dir.apt"/archives/*.deb; do dpkg-deb -x "$deb" "$dir"; done
	rm -rf "$dir.apt"
}

[[ ${BASH_SOURCE[0]} != "$0" ]] || keep "$1" "Debian's ${*:2}" "20 s" "$({ root_key; echo "$@"; recipe unpack; } | hash_of)" \
	unpack "$TOP/out/$1/root" "${@:2}"
