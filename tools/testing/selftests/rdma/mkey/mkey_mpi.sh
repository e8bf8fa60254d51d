#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Keys of random MPI datatypes: each is the source and the target of a WRITE and of a
# READ.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

program=$here/../bin/mkey_mpi_transfer
[[ -x $program ]] || skip_all "no mkey_mpi_transfer: it is built where there is an MPI"
[[ -e /run/netns/ns0 ]] || skip_all "not in the virtual machine"
[[ -n $(netdev_of 0) ]] || skip_all "no device ${dev[0]}"

number=150
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || number=50
[[ ${MKEY_TEST_LONG:-0} == 0 ]] || number=1500
# One process, so no message of MPI itself.
OMPI_MCA_btl=self OMPI_MCA_pml=ob1 exec ip netns exec ns0 "$program" "${dev[0]}" "$number"
