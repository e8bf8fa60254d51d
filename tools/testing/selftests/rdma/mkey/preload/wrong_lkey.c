// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into a program: each MR that it registers says a wrong lkey, so that a bind
 * of a key to it fails. Tests what a program says then.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* The index of the MR is above the low eight bits. */
#define WRONG 0x500000

/* libibmkey registers memory by the ioctl */
static void wrong_response(const struct ib_uverbs_ioctl_hdr *hdr)
{
	struct ib_uverbs_reg_mr_resp *resp = NULL;
	uint64_t command = 0;
	unsigned int i;

	if (hdr->object_id != UVERBS_OBJECT_DEVICE || hdr->method_id != UVERBS_METHOD_INVOKE_WRITE)
		return;
	for (i = 0; i < hdr->num_attrs; i++) {
		if (hdr->attrs[i].attr_id == UVERBS_ATTR_WRITE_CMD)
			command = hdr->attrs[i].data;
		else if (hdr->attrs[i].attr_id == UVERBS_ATTR_CORE_OUT)
			resp = (void *)(uintptr_t)hdr->attrs[i].data;
	}
	if (command == IB_USER_VERBS_CMD_REG_MR && resp)
		resp->lkey |= WRONG;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	long ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	ret = syscall(SYS_ioctl, fd, request, arg);
	if (!ret && request == RDMA_VERBS_IOCTL)
		wrong_response(arg);
	return ret;
}
