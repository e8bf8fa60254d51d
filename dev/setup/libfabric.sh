#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# libfabric.sh: builds libfabric with the patch of patches/libfabric, with and without
# libibmkey, and the programs that transfer through it, into out/libfabric, and prints that
# directory. The source is Debian's. It has no configure script, and the builder root has
# no libtool, so Debian's package of that is unpacked beside it.

# shellcheck source=dev/setup/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

SOURCE=pool/main/libf/libfabric/libfabric_2.1.0.orig.tar.xz
SOURCE_SHA256=1a66369772d5bb151737214af1c478993e969cf298e8f9ed369e7a2ab8d8c6df
PATCH=("$TOP"/patches/libfabric/*.patch)
TEST=$TOP/patches/libfabric/test
OTHERS=(cxi dmabuf_peer_mem efa hook_debug hook_hmem lnx lpp mrail opx perf profile psm2 psm3 rxd rxm
	shm sm2 sockets tcp trigger ucx udp usnic)

# one DIR NAME YESNO CONFIGURE...: configures, builds and installs into DIR/NAME. The configure
# script must find libibmkey if YESNO is 1, and must not if it is 0.
one() {
	# shellcheck disable=SC2016 # the shell in the root expands these
	inroot bash -e -c '
		dir=$1 name=$2 found=$3
		shift 3
		mkdir "$dir/build-$name"
		cd "$dir/build-$name"
		"$dir/source/configure" --prefix="$dir/$name" --disable-static --enable-verbs CFLAGS=-O1 "$@"
		grep -qx "#define VERBS_HAVE_IBMKEY $found" config.h
		make -j2 install
		uses=$(nm -D "$dir/$name/lib/libfabric.so" | grep -c " ibmkey_reg_iov") || true
		[[ $uses == "$found" ]]
		rm -rf "$dir/build-$name"
	' - "$@" "${OTHERS[@]/#/--disable-}"
}

build() { # DIR
	local dir=$1 tools=$1/libtool/usr/share user=$TOP/out/user
	mkdir -p "$dir/source"
	find_mirror
	fetch "$MIRROR/$SOURCE" "$dir/source.tar.xz" || fetch "$DEFAULT_MIRROR/$SOURCE" "$dir/source.tar.xz" ||
		die "no mirror has $SOURCE"
	echo "$SOURCE_SHA256  $dir/source.tar.xz" | sha256sum --check --quiet
	tar -xJf "$dir/source.tar.xz" -C "$dir/source" --strip-components=1
	unpack "$dir/libtool" libtool
	sed -i "s,=\"/usr/share,=\"$tools," "$dir/libtool/usr/bin/libtoolize"
	patch --quiet --strip=1 --fuzz=0 --directory="$dir/source" <"${PATCH[0]}"
	inroot env ACLOCAL_PATH="$tools/aclocal" LIBTOOLIZE="$dir/libtool/usr/bin/libtoolize" \
		autoreconf -if "$dir/source"
	one "$dir" with 1 IBMKEY_DIR="$user" LDFLAGS="-Wl,-rpath,$user/lib"
	one "$dir" without 0
}

dir=$(keep libfabric "libfabric with this tree's patch" "6 min" "$(cat "${PATCH[@]}" "${BASH_SOURCE[0]}" | hash_of)" \
	build "$TOP/out/libfabric")
for program in regv sendv strided; do
	inroot gcc -std=gnu11 -O2 -g -Wall -Wextra -I"$dir/with/include" -o "$dir/$program" "$TEST/$program.c" \
		-L"$dir/with/lib" -Wl,-rpath,"$dir/with/lib" -lfabric
done
printf '%s\n' "$dir"
