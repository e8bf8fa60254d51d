#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: rdma-core's own tests through pyverbs. The list rdma-core-tests has those that
# pass, also without ib_mkey, and those that pass with the preload library, or with the librxe of
# patches/rdma-core, which gives device memory to unchanged programs. Those of mkeys run by the mlx5
# provider of pyverbs, with the libmlx5.so.1 of this tree in front of rdma-core's.

# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
# shellcheck source=lib/rdma-core.sh
source "$here/rdma-core.sh" 2>/dev/null || source "$here/lib/rdma-core.sh"

lib=$here/../lib/ibmkey-mlx5dv
preload=$here/../lib/libibmkey-preload.so
has_rdma_core || skip_all "rdma-core's tests or pyverbs are not there"
[[ -e $lib/libmlx5.so.1 ]] || skip_all "libmlx5 is not built"
[[ -e $preload ]] || skip_all "the preload library is not built"
[[ -n $(netdev_of 0) ]] || skip_all "no device ${dev[0]}"

works=(mkey_list mkey_interleaved mkey_list_new_api mkey_interleaved_new_api odp_mkey_list_new_api
	mkey_list_bad_flow mkey_remote_invalidate)
skips=(mkey_sig_t10dif mkey_sig_crc mkey_sig_err mkey_sig_pipelining_good mkey_sig_pipelining_bad)

# Both look at the results. A test that rdma-core adds is not in the lists.
passed() { grep -q "^ok [0-9]* .*\.test_$1 *\$" <<<"$results" || { echo "$results"; return 1; }; }
skipped() { grep -q "^ok [0-9]* .*\.test_$1 (.*not supported) # SKIP" <<<"$results" || { echo "$results"; return 1; }; }
# rdma-core's library finds no ConnectX.
all_skipped() { ! grep "^ok\|^not ok" <<<"$1" | grep -v "(.*not an MLX5 device.*) # SKIP"; }

mlx5=tests.test_mlx5_mkey
with_preload=(device mr odp)
with_librxe=(device mr)
# the others have nothing to do with ib_mkey
modules=("${rdma_core_modules[@]}")
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || modules=(device mr odp qp)

plan $((${#works[@]} + ${#skips[@]} + 2 + ${#modules[@]} + ${#with_preload[@]} + ${#with_librxe[@]}))
results=$(rdma_core LD_LIBRARY_PATH="$lib" $mlx5)
for t in "${works[@]}"; do check "test_$t" passed "$t"; done
for t in "${skips[@]}"; do check "test_$t skips" skipped "$t"; done
check "there are no other tests" test "$(grep -c '^ok\|^not ok' <<<"$results")" -eq $((${#works[@]} + ${#skips[@]}))
check "with rdma-core's library, all skip" all_skipped "$(rdma_core LD_LIBRARY_PATH= $mlx5)"
for m in "${modules[@]}"; do check "test_$m" rdma_core_passes rxe LD_PRELOAD= "$m"; done
for m in "${with_preload[@]}"; do
	check "test_$m with the preload library" rdma_core_passes 'rxe\|preload\|dm' LD_PRELOAD="$preload" "$m"
done
for m in "${with_librxe[@]}"; do
	check "test_$m with the librxe of patches/rdma-core" rdma_core_passes 'rxe\|dm' RDMAV_DRIVERS="$rdma_core/librxe" "$m"
done
ktap_finished
