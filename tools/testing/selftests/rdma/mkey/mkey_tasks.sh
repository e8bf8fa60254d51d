#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The queue pair of a process has no task left when rxe begins to destroy it
# (test_modules/mkey_tasks.c).

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
module=${MKEY_TASKS:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules/mkey_tasks.ko}
[[ -e $module ]] || skip_all "no mkey_tasks.ko; MKEY_TASKS= names it"
"$here/mkey_slow_end" -t queue_is_destroyed_after_an_error | grep -q '# SKIP\|SKIP  ' &&
	skip_all "no access waits for a page here"

parameter() { cat "/sys/module/mkey_tasks/parameters/$1"; }

# The task that sends fails late, and makes rxe schedule the task that receives.
task_after_task() {
	local delayed early rc=0
	insmod "$module" || return
	program mkey_slow_end -t queue_is_destroyed_after_an_error || rc=1
	delayed=$(parameter delayed)
	early=$(parameter early)
	rmmod mkey_tasks || rc=1
	echo "$delayed tasks began late, $early queue pairs were destroyed early"
	((rc == 0 && delayed > 0 && early == 0))
}

plan 1
check "a task that another task scheduled" task_after_task
ktap_finished
