# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Sphinx, from Debian's packages. It has its own directory in the cache, so
# that the builder root stays as it is: guests do not need it. Part of setup and
# of cmd-htmldocs.

SPHINX_PACKAGES=(python3-sphinx)

sphinx_dir() { printf '%s/sphinx-%s' "$CACHE" "$({ root_key; printf '%s\n' "${SPHINX_PACKAGES[@]}"; recipe make_sphinx; } | hash_of)"; }

# root_download DIR PACKAGE=VERSION...: by the apt of the builder root, which knows all of the suite.
root_download() {
	local dir=$1
	shift
	(cd "$dir" && inroot apt-get download -o APT::Sandbox::User=root "$@") && return
	echo "The package lists may be out of date; updating them."
	inroot -w apt-get update
	(cd "$dir" && inroot apt-get download -o APT::Sandbox::User=root "$@")
}

make_sphinx() {
	local dir=$1 tmp=$1.tmp deb
	local -a needs
	rm -rf "$tmp"
	mkdir -p "$tmp/deb"
	# The packages and all that they need and the builder root lacks.
	mapfile -t needs < <(inroot apt-get -s -o APT::Sandbox::User=root install --no-install-recommends "${SPHINX_PACKAGES[@]}" |
		awk '$1 == "Inst" { sub(/^\(/, "", $3); print $2 "=" $3 }')
	((${#needs[@]} > 0)) || { echo "apt names no packages to install"; return 1; }
	root_download "$tmp/deb" "${needs[@]}"
	for deb in "$tmp"/deb/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done
	# Debian's packages look for their data under /usr/share.
	grep -rlZ --include='*.py' "'/usr/share/" "$tmp/root" | xargs -0 sed -i "s,'/usr/share/\(docutils\|sphinx\),'$dir/usr/share/\1,"
	rm -rf "$dir"
	mv "$tmp/root" "$dir"
	rm -rf "$tmp"
	record "$dir"
}

setup_sphinx() {
	local dir
	dir=$(sphinx_dir)
	is_complete "$dir" || step sphinx "Sphinx, from Debian's packages" "10 s" make_sphinx "$dir"
}

# sphinx SOURCE OUTPUT [OPTION...]: the HTML of the pages in SOURCE. All pages are
# read anew, or the warnings about those that did not change would be missing.
sphinx() {
	local src=$1 out=$2
	shift 2
	inroot env PYTHONPATH="$(sphinx_dir)/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1 \
		srctree="$(kernel_source)" python3 -m sphinx -b html -c "$TOP/dev/docs" -d "$out.doctrees" \
		-q -E "$@" "$src" "$out"
}
