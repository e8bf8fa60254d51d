#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The tests of the Python package: keys of NumPy arrays move what NumPy's own copies
# contain; errors, lifetimes, device memory.
# sets: first long

# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

python=$here/../python
[[ -f $python/tests/test_keys.py ]] || skip_all "the Python package is not built"
[[ -n $(netdev_of 0) ]] || skip_all "no device ${dev[0]}"
export PYTHONPATH=$python/lib:$here/../samples/python:$ktap PYTHONDONTWRITEBYTECODE=1 MKEY_TEST_DEV0="${dev[0]}"
python3 -c 'import numpy, ibmkey' || skip_all "no NumPy or no pyverbs"
# What shows the memory of keys is hidden in a network namespace.
# shellcheck disable=SC2016 # expanded there
in_ns 0 bash -c 'mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	exec python3 "$1/tests/tap.py" test_keys test_kv test_dm test_alloc test_errors test_lifetimes test_requests' bash "$python"
