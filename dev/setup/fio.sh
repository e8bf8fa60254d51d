#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# fio.sh: downloads Debian's fio with the libraries that the builder root lacks, unpacks them into
# out/fio, and prints that directory. Its program fio finds the libraries.

# shellcheck source=dev/setup/config.sh
source "$(dirname "${BASH_SOURCE[0]}")/config.sh"

dir=$TOP/out/fio libraries=$TOP/out/fio/root/usr/lib/x86_64-linux-gnu

# apt COMMAND...: apt-get, which knows what the root has, and keeps its own files in this tree
apt() {
	inroot apt-get -o Dir::State="$dir/state" -o Dir::State::status=/var/lib/dpkg/status \
		-o Dir::Cache="$dir/cache" -o Debug::NoLocking=true -o APT::Sandbox::User=root "$@"
}
build() {
	local deb
	mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
	apt update
	apt install --yes --download-only --no-install-recommends fio
	for deb in "$dir"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
	rm -rf "$dir/state" "$dir/cache"
	cat >"$dir/fio" <<-END
		#!/bin/sh
		LD_LIBRARY_PATH=$libraries:$libraries/ceph exec $dir/root/usr/bin/fio "\$@"
	END
	chmod +x "$dir/fio"
	inroot "$dir/fio" --version
}

key=$({ root_key; cat "${BASH_SOURCE[0]}"; } | hash_of)
if [[ $(cat "$dir/key" 2>/dev/null) != "$key" ]]; then
	rm -rf "$dir"
	mkdir -p "$dir" "$TOP/out/log"
	say "==> fio (usually 20 s)"
	build >"$TOP/out/log/fio.log" 2>&1 || {
		tail -n 20 "$TOP/out/log/fio.log" >&2
		die "fio cannot be had (log: out/log/fio.log)"
	}
	printf '%s' "$key" >"$dir/key"
fi
printf '%s\n' "$dir"
