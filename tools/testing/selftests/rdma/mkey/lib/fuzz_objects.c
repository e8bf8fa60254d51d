// SPDX-License-Identifier: GPL-2.0
/* The memory, windows and queue pairs of the fuzzer. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_objects.h"

struct fuzz_mr *fuzz_mr(struct fuzz_side *s, unsigned int n, bool only_keys)
{
	struct fuzz_mr *found[MRS];
	unsigned int i, num = 0;

	/* one in 16 is of the wrong kind */
	only_keys = only_keys && n % 16 != 15;
	for (i = 0; i < MRS; i++)
		if (s->mr[i].mr && (!only_keys || s->mr[i].key))
			found[num++] = &s->mr[i];
	return num ? found[n % num] : NULL;
}

struct fuzz_mr *fuzz_place(struct fuzz_side *s)
{
	unsigned int i;

	for (i = 0; i < MRS; i++)
		if (!s->mr[i].mr)
			return &s->mr[i];
	return NULL;
}

uint32_t fuzz_lkey(struct fuzz_side *s, unsigned int n)
{
	struct fuzz_mr *m = fuzz_mr(s, n, false);

	return m ? m->mr->lkey : n;
}

uint64_t fuzz_number(struct fuzz *f, struct fuzz_side *s, uint16_t n)
{
	unsigned int low = n & 0xfff;

	switch (n >> 12) {
	case 8:
		return (uintptr_t)s->mem + PAGE + low * 16;
	case 9:
		return 1ull << (low & 63);
	case 10:
		return (1ull << (low & 63)) - 1;
	case 11:
		return -(uint64_t)low;
	case 12:
		return low * PAGE;
	case 13:
		return fuzz_lkey(s, low) ^ (low >> 6 & 3);
	case 14:
		return low & 1 ? f->victim.addr + (low >> 4) :
		       low & 2 ? f->victim.rkey[low >> 2 & 1] : f->victim.lkey[low >> 2 & 1];
	case 15:
		return UINT32_MAX - low;
	default:
		return n;
	}
}

/* returns true if an MR that writes may have these bytes */
static bool fuzz_writable(struct fuzz_side *s, uint64_t addr, uint64_t length)
{
	uint64_t from = addr - (uintptr_t)s->mem - PAGE;

	return (from <= RW_PAGES * PAGE && length <= RW_PAGES * PAGE - from) ||
	       (from >= (RW_PAGES + RO_PAGES) * PAGE && from <= PAGES * PAGE &&
		length <= PAGES * PAGE - from);
}

uint64_t fuzz_out(struct fuzz *f, uint64_t addr)
{
	return addr < PAGE || addr >> 47 ? addr : (uintptr_t)f->out + (addr & 0xffff);
}

unsigned int fuzz_access(uint8_t flags)
{
	/*
	 * Without bit 7 of @flags, the usual flags: only persistent memory can have
	 * FLUSH_PERSISTENT.
	 */
	return flags & 0x80 ? flags & 0x7f :
	       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	       IBV_ACCESS_REMOTE_ATOMIC | (flags & 1 ? IBV_ACCESS_MW_BIND : 0) |
	       (flags & 2 ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
	       ((flags & 20) == 20 ? IBV_ACCESS_FLUSH_PERSISTENT : 0) |
	       (flags & 8 ? IBV_ACCESS_RELAXED_ORDERING : 0);
}

struct mkt_pair *fuzz_pair(struct fuzz *f, unsigned int n)
{
	return &f->pair[n % PAIRS];
}

void fuzz_clear(struct fuzz *f)
{
	f->num_entries = 0;
	f->num_dims = 0;
	f->num_indices = 0;
}

int fuzz_ioctl(struct fuzz *f, struct fuzz_side *s, struct mkt_ioctl *cmd)
{
	const struct fuzz_op *t = f->tweak;
	struct ib_uverbs_attr *attr;

	if (t && t->a % 8 < 6 && cmd->hdr.num_attrs) {
		uint64_t value = fuzz_number(f, s, t->n);

		attr = &cmd->attr[t->obj % cmd->hdr.num_attrs];
		switch (t->a % 8) {
		case 0:
			/* up to 8 bytes are in the command itself */
			attr->data = attr->len > 8 || attr->data >> 32 ? fuzz_out(f, value) : value;
			break;
		case 1:
			attr->len = value;
			break;
		case 2:
			attr->attr_id ^= t->b;
			break;
		case 3:
			mkt_ioctl_drop(cmd, attr->attr_id);
			break;
		case 4:
			attr->flags = value;
			break;
		case 5:
			cmd->hdr.method_id = (1u << UVERBS_ID_NS_SHIFT) + t->b % 8;
			break;
		}
		f->tweak = NULL;
	}
	return mkt_ioctl_run(s->dev[0].ctx, cmd);
}

static void fuzz_reg(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	uint64_t addr = (uintptr_t)s->mem + PAGE + op->n % (PAGES * PAGE);
	uint64_t length = 1 + op->m % ((op->m & 1 ? 2 : PAGES) * PAGE);
	struct ibv_pd *pd = s->dev[op->b >> 3 & op->b >> 4 & 1].pd;
	unsigned int access = fuzz_access(op->a);
	struct ibv_dm *dm = s->dm[op->n % DMS];
	struct fuzz_mr *m = fuzz_place(s);

	if (!m)
		return;
	*m = (struct fuzz_mr){ .start = addr, .length = length };
	if (!fuzz_writable(s, addr, length))
		access &= ~WRITES;
	switch (op->b % 8) {
	case 0:
	case 1:
		m->mr = ibv_reg_mr(pd, (void *)addr, length, access);
		break;
	case 2:
		m->mr = ibv_reg_mr(pd, (void *)addr, length, access | IBV_ACCESS_ON_DEMAND);
		break;
	case 3:
		/* all of the process, which it can read only */
		m->mr = ibv_reg_mr(pd, NULL, SIZE_MAX, (access & ~WRITES) | IBV_ACCESS_ON_DEMAND);
		break;
	case 4:
		m->mr = ibv_reg_mr_iova(pd, (void *)addr, length, fuzz_number(f, s, op->n), access);
		break;
	case 5:
	case 6:
		if (dm)
			m->mr = ibv_reg_dm_mr(pd, dm, op->m & 0xf0, length,
					      access | IBV_ACCESS_ZERO_BASED);
		break;
	case 7:
		if (f->fd >= 0)
			m->mr = ibmkey_reg_dmabuf_mr(pd, op->n & 0xfff, length, op->m, f->fd,
						     access);
		break;
	}
}

bool fuzz_dereg(struct fuzz *f, struct fuzz_side *s, struct fuzz_mr *m)
{
	struct mkt_ioctl cmd;

	if (!m)
		return true;
	if (m->key) {
		mkt_raw_mr_destroy(&cmd, m->mr->handle);
		if (fuzz_ioctl(f, s, &cmd))
			return false;
		free(m->mr);
	} else if (ibv_dereg_mr(m->mr)) {
		return false;
	}
	m->mr = NULL;
	return true;
}

static void fuzz_mw(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct ibv_mw **mw = &s->mw[op->obj % MWS];
	struct mkt_qp *qp = &fuzz_pair(f, op->b)->end[s - f->side];
	struct fuzz_mr *m = fuzz_mr(s, op->a, false);
	struct ibv_send_wr *bad, wr;
	uint64_t addr;

	switch (op->op % FUZZ_NUM_OPS) {
	case FUZZ_MW_ALLOC:
		if (!*mw)
			*mw = ibv_alloc_mw(s->dev[op->b == 255].pd, 1 + (op->a & 1));
		return;
	case FUZZ_MW_FREE:
		if (*mw && !ibv_dealloc_mw(*mw))
			*mw = NULL;
		return;
	}
	if (!*mw || !m)
		return;
	addr = op->n < 0x8000 ? (m->mr->addr ? m->start : 0) + (op->n & 0xff) :
				fuzz_number(f, s, op->n);
	wr = mkt_window_wr(*mw, m->mr, addr,
			   op->m < 0x8000 ? op->m & 0xfff : fuzz_number(f, s, op->m),
			   fuzz_access(op->b >> 4));
	wr.bind_mw.rkey = ibv_inc_rkey((*mw)->rkey);
	if (!ibv_post_send(qp->qp, &wr, &bad))
		(*mw)->rkey = wr.bind_mw.rkey;
}

static void fuzz_dm(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	static const uint64_t classes[] = {
		IB_MKEY_DM_HOST, IB_MKEY_DM_NODE(1), IB_MKEY_DM_HOST, IB_UVERBS_MKEY_DM_P2P,
		IB_MKEY_DM_HOST, IB_UVERBS_MKEY_DM_PMEM, IB_MKEY_DM_COHERENT, 0x30,
	};
	struct ibv_alloc_dm_attr attr = {
		.length = op->n < 0x8000 ? op->n & 0x3fff : fuzz_number(f, s, op->n),
		.log_align_req = op->m & 31,
	};
	struct ibv_dm **dm = &s->dm[op->obj % DMS];
	uint64_t length, addr = fuzz_number(f, s, op->m);
	struct mkt_ioctl cmd;
	int32_t *fd = (int32_t *)f->out;
	volatile uint8_t *map;

	if (op->op % FUZZ_NUM_OPS == FUZZ_DM_ALLOC) {
		if (!*dm)
			*dm = ibmkey_alloc_dm(s->dev[0].ctx, &attr, classes[op->a & 7]);
		return;
	}
	if (!*dm)
		return;
	switch (op->op % FUZZ_NUM_OPS) {
	case FUZZ_DM_FREE:
		if (!ibv_free_dm(*dm))
			*dm = NULL;
		return;
	case FUZZ_DM_COPY:
		/* a copy to memory that nothing may write is no error of the kernel's */
		length = op->n & 0x3fff;
		if (op->a & 1 && !fuzz_writable(s, addr, length))
			addr = fuzz_out(f, addr);
		mkt_raw_dm_copy(&cmd, (*dm)->handle, op->a & 1, op->b & 0x7f, (void *)addr, length);
		fuzz_ioctl(f, s, &cmd);
		return;
	}
	*fd = -1;
	switch (op->a & 3) {
	case 0:
		mkt_ioctl_init(&cmd, UVERBS_OBJECT_DM, IB_MKEY_METHOD_DM_QUERY);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_DM_QUERY_HANDLE, 0, (*dm)->handle);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_DM_QUERY_RESP_CLASS, 8, (uintptr_t)f->out);
		fuzz_ioctl(f, s, &cmd);
		return;
	case 1:
		mkt_raw_dm_view(&cmd, (*dm)->handle, fd, (uint64_t *)(f->out + 64));
		break;
	default:
		mkt_raw_dm_export(&cmd, (*dm)->handle, fd);
	}
	if (fuzz_ioctl(f, s, &cmd) || *fd < 0 || cmd.hdr.method_id == IB_MKEY_METHOD_DM_QUERY)
		return;
	/* a file of the kernel, by a number that it has written */
	map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, op->n & 0xf000);
	if (map != MAP_FAILED) {
		/* the buffer ends at the page before, or the memory has been freed: a signal */
		if (op->n < 0x1000 && op->a & 4)
			map[op->m % PAGE]++;
		if (op->b & 1)
			munmap((void *)map, PAGE);
	}
	if (f->fd >= 0)
		close(f->fd);
	f->fd = *fd;
}

void fuzz_poll(struct fuzz *f, unsigned int rounds)
{
	unsigned int i, idle = 0;
	struct ibv_wc wc[8];

	while (idle < 3 && rounds--) {
		int n = 0;

		for (i = 0; i < 2 * PAIRS; i++)
			n += ibv_poll_cq(f->pair[i / 2].end[i & 1].cq, 8, wc) > 0;
		if (n) {
			idle = 0;
			continue;
		}
		idle++;
		usleep(500);
	}
}

static void fuzz_rereg(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	uint64_t addr = (uintptr_t)s->mem + PAGE + op->n % (PAGES * PAGE);
	uint64_t length = 1 + op->m % (2 * PAGE);
	struct fuzz_mr *m = fuzz_mr(s, op->obj, false);
	unsigned int flags = op->a & 7, access = fuzz_access(op->b);

	if (!m)
		return;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		flags |= IBV_REREG_MR_CHANGE_ACCESS;
	} else {
		addr = m->start;
		length = m->length;
	}
	if (!fuzz_writable(s, addr, length) || !m->mr->addr)
		access &= ~WRITES;
	if (!mkt_raw_rereg_to(m->mr, flags, s->dev[op->a >> 3 & 1].pd, access, (void *)addr, length,
			      op->m & 1 ? op->m : addr)) {
		m->start = addr;
		m->length = length;
	}
}

static void fuzz_advise(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct ib_uverbs_sge list[ENTRIES + 1];
	struct fuzz_mr *m = fuzz_mr(s, op->obj, false);
	unsigned int i;

	list[0] = (struct ib_uverbs_sge){
		(m && m->mr->addr ? m->start : 0) + (op->n & 0xfff),
		op->m < 0x8000 ? op->m & 0xfff : fuzz_number(f, s, op->m),
		m ? m->mr->lkey : op->obj,
	};
	for (i = 0; i < f->num_entries; i++)
		list[i + 1] = (struct ib_uverbs_sge){
			f->block[i].addr, f->block[i].bytes_count, f->block[i].lkey,
		};
	mkt_raw_advise_list(s->dev[op->b == 255].pd, op->a % 4, op->b & 3, list,
			    1 + f->num_entries);
	fuzz_clear(f);
}

/* changes the process's own mappings, of pages that nothing is known of */
static void fuzz_memory(struct fuzz_side *s, const struct fuzz_op *op)
{
	uint8_t *at = s->mem + (1 + RW_PAGES + RO_PAGES + op->n % ODD_PAGES) * PAGE;

	switch (op->a % 6) {
	case 0:
		madvise(at, PAGE, MADV_DONTNEED);
		break;
	case 1:
		mprotect(at, PAGE, PROT_READ);
		break;
	case 2:
		munmap(at, PAGE);
		break;
	case 3:
		mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0);
		break;
	case 4:
		madvise(s->mem + PAGE, RW_PAGES * PAGE, MADV_PAGEOUT);
		break;
	case 5:
		/* the kernel keeps zeros instead, which is what the process may see */
		madvise(s->mem + PAGE * (1 + op->n % RW_PAGES), PAGE, MADV_DONTNEED);
		break;
	}
}

static void fuzz_qp(struct fuzz *f, const struct fuzz_op *op)
{
	struct mkt_pair *pair = fuzz_pair(f, op->obj);

	switch (op->a % 4) {
	case 0:
		mkt_pair_recover(pair);
		break;
	case 1:
		mkt_qp_state(&pair->end[op->b & 1], IBV_QPS_ERR);
		break;
	case 2:
		mkt_qp_state(&pair->end[op->b & 1], IBV_QPS_RESET);
		break;
	case 3:
		mkt_qp_state(&pair->end[op->b & 1], IBV_QPS_SQD);
		break;
	}
}

/* changes a word of a ring, which the process shares with the kernel */
static void fuzz_scribble(struct fuzz *f, const struct fuzz_op *op)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int num = 0, want = op->obj % (4 * PAIRS);
	uint32_t *ring = NULL;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		if (strstr(line, "infiniband") && sscanf(line, "%lx-%lx rw-s", &from, &to) == 2 &&
		    num++ == want) {
			/* not the first words: the library keeps its own sizes there */
			ring = (uint32_t *)from + 32;
			ring += op->m % ((to - from) / 4 - 32);
		}
	}
	if (maps)
		fclose(maps);
	if (ring)
		*ring = fuzz_number(f, &f->side[0], op->n);
}

void fuzz_object(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	switch (op->op % FUZZ_NUM_OPS) {
	case FUZZ_REG:
		fuzz_reg(f, s, op);
		break;
	case FUZZ_DEREG:
		fuzz_dereg(f, s, fuzz_mr(s, op->obj, op->a & 1));
		break;
	case FUZZ_MW_ALLOC:
	case FUZZ_MW_BIND:
	case FUZZ_MW_FREE:
		fuzz_mw(f, s, op);
		break;
	case FUZZ_DM_ALLOC:
	case FUZZ_DM_COPY:
	case FUZZ_DM_FILE:
	case FUZZ_DM_FREE:
		fuzz_dm(f, s, op);
		break;
	case FUZZ_POLL:
		fuzz_poll(f, 1 + (op->a & 15));
		break;
	case FUZZ_REREG:
		fuzz_rereg(f, s, op);
		break;
	case FUZZ_ADVISE:
		fuzz_advise(f, s, op);
		break;
	case FUZZ_MEMORY:
		fuzz_memory(s, op);
		break;
	case FUZZ_QP:
		fuzz_qp(f, op);
		break;
	case FUZZ_SCRIBBLE:
		fuzz_scribble(f, op);
		break;
	case FUZZ_DIE:
		/* in the middle of what was posted */
		kill(getpid(), SIGKILL);
		break;
	}
}
