# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernels. Each is a directory of the cache with
#   image, release       what boots, unpacked if possible, and what it calls itself
#   lib/modules/         its modules, with the indexes modprobe needs
#   build/               where modules for it are built: the KDIR
# made from one source tree that stays clean. Part of setup/config.sh.
#
# They are built in place, so that an interrupted build continues where it was;
# only a record next to the directory says that it is complete.

inroot() { "$TOP/dev/setup/inroot" "$@"; }

# --- source --------------------------------------------------------------------

source_dir() { printf '%s/source-%s' "$CACHE" "$K_VERSION"; }

# Builds only read the source, so names and sizes show whether it is complete.
SOURCE_FILES=(-name '*.[chS]' -o -name '*.rs' -o -name 'Kconfig*' -o -name 'Makefile*')

make_source() {
	local dir=$1 tmp=$1.tmp package
	rm -rf "$tmp"
	mkdir -p "$tmp/deb"
	package=$(source_package)
	download "$tmp/deb" "$package"
	dpkg-deb --fsys-tarfile "$tmp"/deb/*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
		xz -dc -T0 | tar -x -C "$tmp" --strip-components=1
	rm -rf "$tmp/deb" "$dir"
	mv "$tmp" "$dir"
	record "$dir" "${SOURCE_FILES[@]}"
}

# The source that was fetched beside the builder root, or else a new one.
finish_source() {
	wait_for_prefetch
	is_complete "$1" "${SOURCE_FILES[@]}" || make_source "$1"
}

# --- ways to get a kernel ------------------------------------------------------

# unpack_stock DIR SRC RELEASE: the image and the modules of Debian's packages in DIR/packages.
unpack_stock() {
	local dir=$1 src=$2 release=$3 pkg=$1/packages
	dpkg-deb -x "$pkg/linux-modules-$release"_*.deb "$pkg/x"
	dpkg-deb -x "$pkg/linux-binary-unsigned-$release"_*.deb "$pkg/x"
	dpkg-deb -x "$pkg/linux-base-$release"_*.deb "$pkg/x"
	rm -rf "${dir:?}/lib"
	mkdir -p "$dir/lib/modules"
	mv "$pkg/x/usr/lib/modules/$release" "$dir/lib/modules/"
	rm -f "$dir/lib/modules/$release"/{build,source}
	inroot "$src/scripts/extract-vmlinux" "$dir/lib/modules/$release/vmlinuz.unsigned" >"$dir/image"
	rm -f "$dir/lib/modules/$release/vmlinuz.unsigned"
	# The guest loads these at every start; unpacking them is slow there.
	find "$dir/lib/modules/$release/kernel"/{drivers/infiniband,drivers/net/veth*,net/9p,fs/9p,fs/netfs,net/ipv[46]/*udp_tunnel*} \
		-name '*.xz' -exec xz -d {} +
	inroot depmod -b "$dir" "$release"
}

# Debian's own binary kernel. Its headers come without Rust metadata, so the
# source is prepared with its configuration and compiler, which gives the same.
make_stock() {
	local dir=$1 src=$2 release=$K_VERSION+deb13-amd64 version pkg=$1/packages unpack
	rm -rf "$pkg"
	mkdir -p "$pkg" "$dir/build"
	version=$(deb_version "linux-modules-$release" "$K_VERSION")
	download "$pkg" "linux-modules-$release=$version" "linux-headers-$release=$version" \
		"linux-binary-unsigned-$release=$version" "linux-base-$release=$version"
	# Unpacking takes one processor. So does a large part of the compilation.
	unpack_stock "$dir" "$src" "$release" &
	unpack=$!
	# A step is a shell, which has no other trap.
	# shellcheck disable=SC2064 # the number of now
	trap "kill $unpack 2>/dev/null || true; wait" EXIT
	dpkg-deb -x "$pkg/linux-headers-$release"_*.deb "$pkg/headers"
	# An existing file stays as it is, or make would rebuild everything after it.
	[[ -f $dir/build/.config ]] || cp "$pkg/headers/usr/src/linux-headers-$release/.config" "$dir/build/"
	cp "$pkg/headers/usr/src/linux-headers-$release/Module.symvers" "$dir/build/"
	inroot make -C "$src" O="$dir/build" CC=x86_64-linux-gnu-gcc-14 KERNELRELEASE="$release" \
		-j"$(nproc)" olddefconfig prepare modules_prepare
	wait "$unpack"
	rm -rf "$pkg"
	printf '%s\n' "$release" >"$dir/release"
}

# What builds modules for Debian's kernel on arm64, with its configuration and symbols. Nothing boots it.
make_arm64() {
	local dir=$1 src=$2 release=$K_VERSION+deb13-arm64 package pkg=$1/packages
	rm -rf "$pkg"
	mkdir -p "$pkg" "$dir/build"
	package=linux-headers-$release:arm64
	download "$pkg" "$package=$(deb_version "$package" "$K_VERSION")"
	dpkg-deb -x "$pkg"/linux-headers-*.deb "$pkg/headers"
	[[ -f $dir/build/.config ]] || cp "$pkg/headers/usr/src/linux-headers-$release/.config" "$dir/build/"
	cp "$pkg/headers/usr/src/linux-headers-$release/Module.symvers" "$dir/build/"
	inroot make -C "$src" O="$dir/build" ARCH=arm64 LLVM=-19 KERNELRELEASE="$release" \
		-j"$(nproc)" olddefconfig prepare modules_prepare
	rm -rf "$pkg"
	printf '%s\n' "$release" >"$dir/release"
}

# Builds a kernel from tinyconfig and the fragments given.
build_kernel() {
	local dir=$1 src=$2 release
	local -a make=(inroot make -C "$src" O="$dir/build" LLVM=-19 -j"$(nproc)")
	shift 2
	mkdir -p "$dir/build"
	if ! cat "$@" | cmp -s - "$dir/fragments"; then
		# A later line wins; Kconfig says which did.
		"${make[@]}" tinyconfig
		cat "$@" >>"$dir/build/.config"
		"${make[@]}" olddefconfig
		check_config "$dir/build/.config" "$@"
		cat "$@" >"$dir/fragments"
	fi
	"${make[@]}" vmlinux modules
	release=$(cat "$dir/build/include/config/kernel.release")
	rm -rf "${dir:?}/lib"
	"${make[@]}" modules_install INSTALL_MOD_PATH="$dir" INSTALL_MOD_STRIP=1
	rm -f "$dir/lib/modules/$release"/{build,source}
	inroot llvm-strip-19 --strip-debug -o "$dir/image" "$dir/build/vmlinux"
	printf '%s\n' "$release" >"$dir/release"
}

# Fails if Kconfig did not accept an option, so that no test finds out later. A later
# fragment wins over an earlier one.
check_config() {
	local config=$1 bad
	shift
	bad=$(awk -F= '
		FNR == NR && /^CONFIG_/ { have[$1] = $2; next }
		FNR == NR { next }
		/^# CONFIG_.* is not set/ { split($0, w, " "); want[w[2]] = "n" }
		/^CONFIG_/ { want[$1] = $2 }
		END {
			for (o in want) {
				h = o in have ? have[o] : "n"
				if (h != want[o])
					print "  " o "=" want[o] " became " h
			}
		}' "$config" "$@")
	[[ -z $bad ]] || { printf 'Kconfig did not accept these options:\n%s\n' "$bad"; return 1; }
}

make_custom() { build_kernel "$1" "$2" "$TOP/dev/kernel/"{kernel,ulp}.config; }
make_debug() { build_kernel "$1" "$2" "$TOP/dev/kernel/"{kernel,ulp,debug}.config; }

# Prints the image that boots, from the user's own build directory.
kdir_image() {
	local f
	for f in arch/x86/boot/bzImage vmlinuz ../vmlinuz; do
		[[ ! -f $KDIR/$f ]] || { printf '%s' "$KDIR/$f"; return; }
	done
}

# Only what the guest needs is copied from there.
make_kdir() {
	local dir=$1
	mkdir -p "$dir"
	inroot make -C "$KDIR" modules_install INSTALL_MOD_PATH="$dir" INSTALL_MOD_STRIP=1
	cp "$(kdir_image)" "$dir/image"
	kdir_release "$KDIR" >"$dir/release"
}

KERNEL_FILES=(-path './lib/*' -o -name image -o -name release -o -name .config -o -name Module.symvers
	-o -path './build/rust/*' -name '*.so' -o -path './build/rust/*' -name '*.rmeta'
	-o -path './build/include/generated/*.h' -o -path './build/scripts/*' -perm -u+x)

finish_kernel() {
	local dir=$2
	"$@"
	record "$dir" "${KERNEL_FILES[@]}"
}

# is_newer FILE PATH...: true when something in one of PATHs is newer than FILE.
is_newer() {
	local than=$1
	shift
	[[ -n $(find "$@" -newer "$than" -type f -print -quit 2>/dev/null) ]]
}

setup_kdir() {
	local dir image
	image=$(kdir_image)
	[[ -n $image ]] ||
		die "KDIR=$KDIR has no arch/x86/boot/bzImage and no vmlinuz: modules can be built for it, but there is no kernel to boot"
	[[ -f $KDIR/modules.order ]] || die "KDIR=$KDIR has no modules.order: build its modules first"
	dir=$(kernel_dir)
	is_complete "$dir" "${KERNEL_FILES[@]}" && ! is_newer "$dir.record" "$image" "$KDIR/modules.order" && return
	rm -rf "$dir" "$dir.record"
	step kernel-kdir "Kernel $K_VERSION from KDIR: copying its modules" "10 s" finish_kernel make_kdir "$dir"
}

# Unpacks Debian's source unless KSRC= names another one.
setup_source() {
	local src
	[[ -z ${KSRC-} ]] || return 0
	settle_version
	src=$(source_dir)
	if ! is_complete "$src" "${SOURCE_FILES[@]}"; then
		setup_lists
		step source "Kernel source: Linux $K_VERSION, downloaded from Debian and unpacked" "30-60 s" finish_source "$src"
	fi
}

setup_kernel() {
	local dir src what how damaged=0
	if [[ $K_FLAVOUR == kdir ]]; then
		setup_kdir
		return
	fi
	settle_version
	dir=$(kernel_dir)
	if is_complete "$dir" "${KERNEL_FILES[@]}"; then
		[[ -n ${KSRC-} ]] && is_newer "$dir.record" "$KSRC" || return 0
	elif [[ -f $dir.record ]]; then
		damaged=1
	fi
	src=${KSRC:-$(source_dir)}
	setup_source
	[[ $K_FLAVOUR != @(stock|arm64) ]] || setup_lists
	# Other set-ups of other kernels can run meanwhile.
	take_lock "$dir.lock" "making $K_ID"
	if ((LOCK_WAITED)) && is_complete "$dir" "${KERNEL_FILES[@]}"; then
		lock_cache
		return
	fi
	# An interrupted build continues; a damaged one begins again.
	((damaged == 0)) || rm -rf "$dir"
	rm -f "$dir.record"
	case $K_FLAVOUR in
	stock) what="Debian's kernel, and its Rust crates for building modules" how="2-3 min" ;;
	arm64) what="the Rust crates for building modules for Debian's kernel on arm64" how="2-3 min" ;;
	custom) what="built with our configuration" how="12 min on two cores" ;;
	debug) what="built with KASAN, lockdep, kmemleak and fault injection" how="14 min on two cores" ;;
	esac
	step "kernel-$K_ID" "Kernel $K_ID: $what" "$how" finish_kernel "make_$K_FLAVOUR" "$dir" "$src"
	lock_cache
}
