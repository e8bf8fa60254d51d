#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The examples of README.md and of the pages do what the text says. Runs each command
# line of a "console" block, in order, and compares the output.
#
# In such a block, a line that begins with "$ " is a command, and a line that ends with a backslash continues in the next one. The other lines are the output of the command
# before them; "..." matches anything. A block whose first line is a comment that begins with a path in /tmp/first is saved under that path. "make vm-run" runs its CMD
# here, because this is the VM; "make setup" has been done.

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
trap 'rm -rf "$work" /tmp/first' EXIT

# Under emulation each process takes a tenth of a second, so what can be done by few is.

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

# typed FILE: runs the command in FILE; its output must match FILE.out. The reader types it
# on a host, whose C library may be older than that for which the programs in out/user are built.
typed() {
	local got want
	[[ $(<"$1") == "make "* ]] || { echo "a host may be unable to run this: use make vm-run"; return 1; }
	got=$(cd "$tree" && eval "$(<"$1")" 2>&1) || { printf '%s\nstatus %d\n' "$got" $?; return 1; }
	want=$(sed 's/[][*?\\]/\\&/g; s/\.\.\./*/g' "$1.out")
	# shellcheck disable=SC2053 # a pattern
	[[ $got == $want ]] || { diff "$1.out" - <<<"$got"; return 1; }
}

# The blocks of page N are in N/. Save the programs and find the commands.
n=0 all=() dirs=()
saves='^(/\*|#) (/tmp/first/[A-Za-z_.]*): '
for page in "${pages[@]}"; do dirs+=("$work/$((++n))"); done
mkdir "${dirs[@]}"
blocks "$work" "${pages[@]}"
n=0
for page in "${pages[@]}"; do
	n=$((n + 1))
	for block in "$work/$n"/*.*; do
		IFS= read -r first <"$block"
		[[ ! $first =~ $saves ]] || all+=("$page:$block:${BASH_REMATCH[2]}")
		[[ $block == *.console ]] || continue
		mkdir -p "$block.d"
		commands "$block" "$block.d"
		for command in "$block.d"/???; do
			all+=("$page:$command:")
		done
	done
done

saved() { mkdir -p "$(dirname "$2")" && cp "$1" "$2"; }

plan ${#all[@]}
for one in "${all[@]}"; do
	IFS=: read -r page file path <<<"$one"
	if [[ -n $path ]]; then
		check "${page##*/}: save $path" saved "$file" "$path"
	else
		IFS= read -r first <"$file"
		check "${page##*/}: ${first//#/}" typed "$file"
	fi
done
ktap_finished
