# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The groups of "make bench". All but native are measured in the VM, in this order.
# shellcheck disable=SC2034 # for the scripts that source this

all_groups=(strided layouts growth bind request dm kv ulp halo ordinary)
