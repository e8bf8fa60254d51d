#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The examples of README.md and of the pages do what the text says. Runs each command
# line of a "console" block, in order, and compares the output.
# sets: first
#
# In such a block, a line that begins with "$ " is a command, and a line that ends with a backslash continues in the next one. The other lines are the output of the command
# before them; "..." matches anything. A block whose first line is a comment that begins with a path in /tmp/first is saved under that path. "make vm-run" runs its CMD
# here, because this is the VM; "make setup" has been done.
#
# A block whose first line is a comment "From PATH." has lines of that file, as they are there. Empty lines separate parts
# that are at different places of the file. In the tutorial,
# each block is one of these, so that no line of it is untested.
#
# A block whose first line begins with "host-a# " or "host-b# " is for two hosts, which are two network
# namespaces here: eth0 with 192.0.2.1 and eth1 with 192.0.2.2. The commands of the hosts in one block run at the
# same time.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

tree=$(cd "$here/../../.." && pwd)
pages=("$tree/README.md" "$tree"/Documentation/infiniband/mkey/*.rst)
[[ -f $tree/README.md && -d $tree/samples/user ]] || skip_all "the tree with README.md and the pages is not here"
command -v gcc pkg-config >/dev/null || skip_all "no gcc or no pkg-config"
[[ -n $(netdev_of 0) ]] || skip_all "no device ${dev[0]}"
shopt -s nullglob
work=$(mktemp -d)
trap 'rm -rf "$work" /tmp/first; remove_hosts' EXIT

# Under emulation each process takes 10 to 30 ms, so these functions start few.

# blocks DIR PAGE...: writes each code block of page N to a file NUMBER.LANGUAGE in DIR/N
blocks() {
	awk -v parent="$1" '
		FNR == 1 { dir = parent "/" ++page; n = markdown = rst = 0 }
		function begin(language) { file = sprintf("%s/%03d.%s", dir, ++n, language); body = blank = 0 }
		markdown && /^```$/ { markdown = 0; close(file); next }
		markdown { print >file; next }
		rst && /^\t/ {
			for (; blank; blank--)
				print "" >file
			print substr($0, 2) >file
			body = 1
			next
		}
		rst && /^$/ { blank += body; next }
		rst && !body && /^ *:/ { next }
		rst { rst = 0; close(file) }
		/^```[a-z]/ { markdown = 1; begin(substr($0, 4)) }
		/^\.\. code-block:: / { rst = 1; begin($3) }' "${@:2}"
}

# commands BLOCK DIR: writes each command to a file NUMBER in DIR, and its output to
# NUMBER.out
commands() {
	awk -v dir="$2" '
		/^\$ / { file = sprintf("%s/%03d", dir, ++n); print substr($0, 3) >file; printf "" >(file ".out"); more = /\\$/; next }
		more { print >file; more = /\\$/; next }
		{ print >(file ".out") }' "$1"
}

make() {
	local word cmd='' share=
	[[ $1 != setup ]] || return 0
	[[ $1 == vm-run ]] || { command make "$@"; return; }
	for word in "${@:2}"; do
		[[ $word != CMD=* ]] || cmd=${word#CMD=}
		[[ $word != SHARE=* ]] || share=${word#SHARE=}
	done
	[[ $cmd != */tmp/first* || $share == /tmp/first ]] || { echo "the VM has no /tmp/first without SHARE="; return 1; }
	bash -c "$cmd"
}

# prints FILE COMMAND...: the output of COMMAND must match FILE.out
prints() {
	local file=$1 got want
	shift
	got=$(cd "$tree" && "$@" 2>&1) || { printf '%s\nstatus %d\n' "$got" $?; return 1; }
	want=$(sed 's/[][*?\\]/\\&/g; s/\.\.\./*/g' "$file.out")
	# shellcheck disable=SC2053 # a pattern
	[[ $got == $want ]] || { diff "$file.out" - <<<"$got"; return 1; }
}

# typed FILE: runs the command in FILE. The reader types it on a host, whose C library may be older
# than that for which the programs in out/user are built.
typed() {
	[[ $(<"$1") == "make "* ]] || { echo "a host may be unable to run this: use make vm-run"; return 1; }
	prints "$1" eval "$(<"$1")"
}

add_hosts() {
	ip -batch - <<-EOF
		netns add host-a
		netns add host-b
		link add eth0 netns host-a type veth peer name eth1 netns host-b
	EOF
	ip -n host-a -batch - <<<$'addr add 192.0.2.1/24 dev eth0\nlink set eth0 up'
	ip -n host-b -batch - <<<$'addr add 192.0.2.2/24 dev eth1\nlink set eth1 up'
}
# The links go with the namespaces.
remove_hosts() {
	[[ ! -e /run/netns/host-a ]] || ip netns delete host-a
	[[ ! -e /run/netns/host-b ]] || ip netns delete host-b
}

# one_host HOST DIR: runs the commands of a host. What make install installs is in out/user.
one_host() {
	local file
	for file in "$2/$1"/???; do
		prints "$file" ip netns exec "$1" env PATH="$tree/out/user/bin:$PATH" LD_LIBRARY_PATH="$tree/out/user/lib" \
			PKG_CONFIG_PATH="$tree/out/user/lib/pkgconfig" bash -c "$(<"$file")" || { echo "$1# $(<"$file")"; return 1; }
	done
}
# both_hosts BLOCK: runs a block for two hosts
both_hosts() {
	local host first rc=0
	for host in host-a host-b; do
		mkdir -p "$1.d/$host"
		# As the block of one machine, with the lines of this host.
		awk -v host="$host" '
			/^host-[ab]# / { mine = index($0, host "# ") == 1; if (mine) print "$ " substr($0, length(host) + 3); next }
			mine' "$1" >"$1.d/$host.console"
		commands "$1.d/$host.console" "$1.d/$host"
	done
	one_host host-a "$1.d" >"$1.d/said" 2>&1 &
	first=$!
	one_host host-b "$1.d" || { rc=1; kill "$first" 2>/dev/null; }
	wait "$first" || rc=1
	((rc == 0)) || cat "$1.d/said"
	return "$rc"
}

# The blocks of page N are in N/. Save the programs and find the commands.
n=0 all=() dirs=()
saves='^(/\*|#) (/tmp/first/[A-Za-z_.]*): '
quotes='^(/\*|#) From ([A-Za-z_./]*)\.( \*/)?$'
for page in "${pages[@]}"; do dirs+=("$work/$((++n))"); done
mkdir "${dirs[@]}"
blocks "$work" "${pages[@]}"
n=0
for page in "${pages[@]}"; do
	n=$((n + 1))
	for block in "$work/$n"/*.*; do
		IFS= read -r first <"$block"
		if [[ $first =~ $saves ]]; then
			all+=("$page:$block:${BASH_REMATCH[2]}")
		elif [[ $first =~ $quotes ]]; then
			all+=("$page:$block:from ${BASH_REMATCH[2]}")
		elif [[ $block != *.console && $page == */tutorial.rst ]]; then
			all+=("$page:$block:untested")
		fi
		[[ $block == *.console ]] || continue
		if [[ $first == host-[ab]"# "* ]]; then
			all+=("$page:$block:hosts")
			continue
		fi
		mkdir -p "$block.d"
		commands "$block" "$block.d"
		for command in "$block.d"/???; do
			all+=("$page:$command:")
		done
	done
done

# A literal block has no language, so it is no block of those above.
all+=("${pages[0]%/*}/Documentation/infiniband/mkey/tutorial.rst:literal:untested")

saved() { mkdir -p "$(dirname "$2")" && cp "$1" "$2"; }
quoted() {
	local part
	while IFS= read -r -d '' part; do
		[[ $(<"$2") == *"$part"* ]] || { echo "$2 does not have: $part"; return 1; }
	done < <(sed 1d "$1" | awk 'BEGIN { RS = ""; ORS = "\0" } { print }')
}
no_literal() { ! grep -nE '^[^.].*::$|^::$' "$1"; }

[[ ${all[*]} != *:hosts* ]] || add_hosts || skip_all "no network namespaces"
plan ${#all[@]}
for one in "${all[@]}"; do
	IFS=: read -r page file path <<<"$one"
	if [[ $path == hosts ]]; then
		IFS= read -r first <"$file"
		check "${page##*/}: ${first//#/}" both_hosts "$file"
	elif [[ $path == "from "* ]]; then
		check "${page##*/}: the lines of ${path#from }" quoted "$file" "$tree/${path#from }"
	elif [[ $path == untested && $file == literal ]]; then
		check "${page##*/}: no literal block, whose lines no test runs" no_literal "$page"
	elif [[ $path == untested ]]; then
		IFS= read -r first <"$file"
		check "${page##*/}: is tested: $first" false
	elif [[ -n $path ]]; then
		check "${page##*/}: save $path" saved "$file" "$path"
	else
		IFS= read -r first <"$file"
		check "${page##*/}: ${first//#/}" typed "$file"
	fi
done
ktap_finished
