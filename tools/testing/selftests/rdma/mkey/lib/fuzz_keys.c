// SPDX-License-Identifier: GPL-2.0
/* The keys and the work requests of the fuzzer. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_objects.h"

/* a key has another lkey and rkey */
static void fuzz_rename(struct fuzz_mr *m, uint32_t rkey)
{
	m->mr->lkey = rkey;
	m->mr->rkey = rkey;
}

static void fuzz_create(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct ibv_pd *pd = s->dev[op->b == 255].pd;
	uint32_t *keys = (uint32_t *)f->out;
	struct fuzz_mr *m = fuzz_place(s);
	struct mkt_ioctl cmd;

	if (!m)
		return;
	mkt_raw_create(&cmd, pd, op->n < 0x8000 ? op->n & 31 : fuzz_number(f, s, op->n), keys,
		       keys + 2);
	if (op->a)
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_CREATE_FLAGS, 4, op->a & 2 ? op->a : 1);
	if (op->m & 1)
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_CREATE_RESP_REFUSED,
			      sizeof(struct ib_uverbs_mkey_refused), (uintptr_t)f->out + 64);
	if (fuzz_ioctl(f, s, &cmd) || cmd.hdr.method_id != IB_MKEY_METHOD_CREATE)
		return;
	*m = (struct fuzz_mr){ .key = true, .mr = calloc(1, sizeof(*m->mr)) };
	if (!m->mr)
		abort();
	m->mr->context = s->dev[0].ctx;
	m->mr->pd = pd;
	m->mr->handle = cmd.attr[0].data;
	m->mr->lkey = keys[0];
	m->mr->rkey = keys[2];
}

static void fuzz_entry(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct fuzz_mr *m = fuzz_mr(s, op->a, false);
	struct ib_uverbs_mkey_block *b;
	uint64_t base = m && !m->key && m->mr->addr ? m->start : 0;

	if (f->num_entries == ENTRIES)
		return;
	b = &f->block[f->num_entries++];
	*b = (struct ib_uverbs_mkey_block){
		.addr = op->n < 0x8000 ? base + (op->n & 0xfff) : fuzz_number(f, s, op->n),
		.bytes_count = op->m < 0x8000 ? op->m & 0xfff : fuzz_number(f, s, op->m),
		.lkey = op->b == 255 ? fuzz_number(f, s, op->n) : m ? m->mr->lkey : op->a,
		.stride = { op->b },
	};
}

/*
 * Makes a description of kind @kind from the entries so far: in @bind and behind it, in f->out, or
 * as the text of a request, which has no addresses. Returns the end.
 */
static uint8_t *fuzz_describe(struct fuzz *f, struct ib_uverbs_mkey_bind *bind, unsigned int kind,
			      unsigned int access, uint8_t *to, bool text)
{
	unsigned int i, words, dims = f->num_dims ?: 1;
	struct ib_uverbs_mkey_sge *sge;
	const struct fuzz_op *t = f->tweak;
	uint8_t *begin = to;

	memset(bind, 0, sizeof(*bind));
	bind->kind = 1 + kind % 3;
	bind->access = access;
	bind->num_entries = f->num_entries;
	if (bind->kind == IB_UVERBS_MKEY_INTERLEAVED) {
		bind->num_dims = dims;
		bind->repeat_count = (uintptr_t)to;
		memcpy(to, f->num_dims ? f->repeat : (uint64_t[]){ 1 + kind / 3 }, dims * 8);
		to += dims * 8;
	}
	if (!text || bind->kind != IB_UVERBS_MKEY_INDEXED)
		bind->entries = (uintptr_t)to;
	switch (bind->kind) {
	case IB_UVERBS_MKEY_LIST:
		bind->entry_size = sizeof(*sge);
		for (i = 0; i < f->num_entries; i++, to += sizeof(*sge)) {
			sge = (struct ib_uverbs_mkey_sge *)to;
			*sge = (struct ib_uverbs_mkey_sge){
				.addr = f->block[i].addr,
				.length = f->block[i].bytes_count,
				.lkey = f->block[i].lkey,
			};
		}
		break;
	case IB_UVERBS_MKEY_INTERLEAVED:
		bind->entry_size = sizeof(f->block[0]);
		for (i = 0; i < f->num_entries; i++, to += sizeof(f->block[0])) {
			if (f->num_dims <= 1)
				memset(f->block[i].stride + 1, 0, 7 * 8);
			memcpy(to, &f->block[i], sizeof(f->block[0]));
		}
		break;
	case IB_UVERBS_MKEY_INDEXED:
		bind->num_entries = 1;
		bind->entry_size = sizeof(struct ib_uverbs_mkey_indexed);
		*(struct ib_uverbs_mkey_indexed *)to = (struct ib_uverbs_mkey_indexed){
			.addr = f->block[0].addr,
			.unit = f->block[0].stride[0],
			.bytes_count = f->block[0].bytes_count,
			.lkey = f->block[0].lkey,
			.num_indices = f->num_indices,
			.index_bytes = 8 >> (kind / 3 & 1),
			.indices = text ? 0 : (uintptr_t)to + bind->entry_size,
		};
		to += bind->entry_size;
		for (i = 0; i < f->num_indices; i++, to += 8 >> (kind / 3 & 1)) {
			if (kind / 3 & 1)
				*(uint32_t *)to = f->index[i];
			else
				memcpy(to, &f->index[i], 8);
		}
		break;
	}
	words = (to - begin) / 4;
	if (t && t->a % 8 == 6) {
		((uint32_t *)bind)[t->obj % (sizeof(*bind) / 4)] =
			fuzz_number(f, &f->side[0], t->n);
		f->tweak = NULL;
	} else if (t && t->a % 8 == 7 && words) {
		((uint32_t *)begin)[t->obj % words] = fuzz_number(f, &f->side[0], t->n);
		f->tweak = NULL;
	}
	return to;
}

/* by a call, of one key or of several */
static void fuzz_bind(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op,
		      unsigned int num)
{
	struct ib_uverbs_mkey_bind *bind = (void *)(f->out + 4096);
	struct ib_uverbs_mkey_refused *refused = (void *)(f->out + 2048);
	uint8_t *text = f->out + 8192;
	uint32_t *handles = (uint32_t *)f->out, *keys = handles + 16;
	struct fuzz_mr *m[8];
	struct mkt_ioctl cmd;
	unsigned int i;

	for (i = 0; i < num; i++) {
		m[i] = fuzz_mr(s, op->obj + i, true);
		if (!m[i])
			return;
		handles[i] = m[i]->mr->handle;
		text = fuzz_describe(f, &bind[i], op->a, fuzz_access(op->b), text, false);
		if (op->n) {
			bind[i].comp_mask |= IB_UVERBS_MKEY_BIND_BASE;
			bind[i].base_addr = fuzz_number(f, s, op->n);
		}
		if (op->m) {
			bind[i].comp_mask |= IB_UVERBS_MKEY_BIND_RKEY;
			bind[i].rkey = m[i]->mr->rkey ^ (op->m >> 8 ? op->m : (op->m & 0xff));
		}
	}
	if (num == 1) {
		mkt_raw_bind(&cmd, handles[0], bind);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_RESP_RKEY, 4, (uintptr_t)keys);
		if (op->n & 1)
			mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_RESP_REFUSED, sizeof(*refused),
				      (uintptr_t)refused);
	} else {
		mkt_raw_bind_many(&cmd, handles, num, bind, keys + 8);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_MANY_RESP_RKEYS, 4 * num, (uintptr_t)keys);
		if (op->n & 1)
			mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED, sizeof(*refused),
				      (uintptr_t)refused);
	}
	if (!fuzz_ioctl(f, s, &cmd))
		for (i = 0; i < num; i++)
			fuzz_rename(m[i], keys[i]);
	fuzz_clear(f);
}

static void fuzz_bind_wr(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct mkt_qp *qp = &fuzz_pair(f, op->n)->end[s - f->side];
	struct fuzz_mr *m = fuzz_mr(s, op->obj, true);
	struct ib_uverbs_mkey_layout *head = (void *)(f->out + 16384);
	struct ib_uverbs_mkey_bind bind;
	struct ibv_mw mw = { .context = s->dev[0].ctx, .pd = qp->dev->pd, .type = IBV_MW_TYPE_2 };
	struct ibv_mr mr = *s->text;
	struct ibv_send_wr *bad, wr;
	uint8_t *end;

	if (!m)
		return;
	end = fuzz_describe(f, &bind, op->a, 0, (uint8_t *)(head + 1) + (op->m & 2 ? 8 : 0), true);
	*head = (struct ib_uverbs_mkey_layout){
		.version = IB_MKEY_LAYOUT_VERSION,
		.kind = bind.kind,
		.num_entries = bind.num_entries,
		.entry_size = bind.entry_size,
		.num_dims = bind.num_dims,
		.comp_mask = (op->m & 1 ? IB_UVERBS_MKEY_LAYOUT_ANY_PORTION : 0) |
			     (op->m & 2 ? IB_UVERBS_MKEY_LAYOUT_BASE : 0) |
			     (op->m & 4 ? IB_UVERBS_MKEY_LAYOUT_REMOTE_INV : 0),
	};
	if (op->m & 2)
		*(uint64_t *)(head + 1) = op->m << 8;
	mw.rkey = m->mr->rkey;
	wr = mkt_window_wr(&mw, &mr, (uintptr_t)head,
			   end - (uint8_t *)head + (op->m >> 12 == 15 ? (op->m >> 8 & 15) - 8 : 0),
			   fuzz_access(op->b));
	wr.bind_mw.rkey = op->m & 8 ? ibv_inc_rkey(m->mr->rkey) : m->mr->rkey;
	if (op->m & 16) {
		wr.send_flags |= IBV_SEND_INLINE;
		wr.num_sge = 1;
		wr.bind_mw.bind_info.length = 0;
		wr.sg_list = &(struct ibv_sge){ (uintptr_t)head, end - (uint8_t *)head, 0 };
	}
	if (op->m & 32)
		mr.lkey = fuzz_lkey(s, op->m >> 8);
	if (!ibv_post_send(qp->qp, &wr, &bad))
		fuzz_rename(m, wr.bind_mw.rkey);
	fuzz_clear(f);
}

static void fuzz_query(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct fuzz_mr *m = fuzz_mr(s, op->obj, true);
	uintptr_t out = (uintptr_t)f->out;
	struct mkt_ioctl cmd;

	if (!m || op->a & 1) {
		mkt_raw_caps(&cmd, (void *)f->out);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_CAPS_RESP_REFUSED_ACCESS,
			      sizeof(struct ib_uverbs_mkey_refused_access), out + 1024);
		fuzz_ioctl(f, s, &cmd);
		return;
	}
	mkt_raw_query(&cmd, m->mr->handle, (void *)f->out);
	if (op->a & 2)
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT, 8 * (op->b & 15),
			      out + 256);
	if (op->a & 4) {
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_BLOCKS, 8,
			      fuzz_out(f, op->n < 0x8000 ? out + 8192 : fuzz_number(f, s, op->n)));
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_NUM_BLOCKS, 4, op->m & 63);
	}
	if (op->a & 8) {
		*(struct ib_uverbs_mkey_indexed *)(f->out + 512) = (struct ib_uverbs_mkey_indexed){
			.indices = fuzz_out(f, op->n < 0x8000 ? out + 16384 :
								fuzz_number(f, s, op->n)),
			.num_indices = op->m & 255,
			.index_bytes = 8,
		};
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_INDEXED,
			      sizeof(struct ib_uverbs_mkey_indexed), out + 512);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_RESP_INDEXED,
			      sizeof(struct ib_uverbs_mkey_indexed), out + 1024);
	}
	if (op->a & 16)
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_RESP_REFUSED,
			      sizeof(struct ib_uverbs_mkey_refused), out + 1536);
	if (op->a & 32)
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_RESP_REFUSED_ACCESS,
			      sizeof(struct ib_uverbs_mkey_refused_access), out + 2048);
	if (op->a & 64)
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_RESP_BASE_ADDR, 8, out + 2560);
	if (op->a & 128)
		mkt_raw_unbind(&cmd, m->mr->handle);
	fuzz_ioctl(f, s, &cmd);
}

static void fuzz_unbind(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct fuzz_mr *m = fuzz_mr(s, op->obj, true);
	struct mkt_ioctl cmd;

	if (!m)
		return;
	mkt_raw_unbind(&cmd, m->mr->handle);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_UNBIND_RESP_RKEY, 4, (uintptr_t)f->out);
	if (!fuzz_ioctl(f, s, &cmd))
		fuzz_rename(m, *(uint32_t *)f->out);
}

static void fuzz_post(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	unsigned int side = s - f->side, i, what = op->a % 12;
	struct mkt_qp *qp = &fuzz_pair(f, op->a >> 4)->end[side];
	struct fuzz_side *there = &f->side[!side];
	struct fuzz_mr *m = fuzz_mr(s, op->obj, false), *r = fuzz_mr(there, op->b, false);
	struct ibv_mw *mw = there->mw[op->b % MWS];
	uint32_t length = op->m < 0x8000 ? op->m & 0x3fff : fuzz_number(f, s, op->m);
	struct mkt_wr wr = {
		.op = what % 11,
		.num_sge = 1,
		.sge[0] = {
			m && !m->key && m->mr->addr ? m->start : op->n & 0xff,
			length,
			m ? m->mr->lkey : op->obj,
		},
		.remote_addr = op->n < 0x8000 ? (r && !r->key && r->mr->addr ? r->start : 0) +
						(op->n & 0xfff) : fuzz_number(f, there, op->n),
		.rkey = op->b & 64 && mw ? mw->rkey : r ? r->mr->rkey : op->b,
		.swap_add = op->n,
		.flush_length = length,
		.whole = op->m & 1,
		.persistent = op->m & 2,
	};

	if (op->b == 255)
		wr.rkey = fuzz_number(f, there, 0xe002 | (op->n & 4));
	switch (wr.op) {
	case MKT_FETCH_ADD:
	case MKT_CMP_SWAP:
		wr.sge[0].length = 8;
		break;
	case MKT_FLUSH:
	case MKT_ATOMIC_WRITE:
		if (!ibv_qp_to_qp_ex(qp->qp))
			return;
		break;
	case MKT_LOCAL_INV:
		wr.num_sge = 0;
		wr.rkey = op->b & 64 && s->mw[op->b % MWS] ? s->mw[op->b % MWS]->rkey :
			  fuzz_lkey(s, op->b);
		break;
	default:
		/* entries that no bind has taken */
		for (i = 0; i < f->num_entries && wr.num_sge < MKT_MAX_SGE; i++)
			wr.sge[wr.num_sge++] = (struct ibv_sge){
				f->block[i].addr, f->block[i].bytes_count, f->block[i].lkey,
			};
		f->num_entries = 0;
	}
	mkt_post_send(qp, &wr, 1);
}

static void fuzz_recv(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	struct fuzz_mr *m = fuzz_mr(s, op->obj, false);
	struct ibv_sge sge = {
		m && !m->key && m->mr->addr ? m->start : op->n & 0xfff,
		op->m < 0x8000 ? op->m & 0x3fff : fuzz_number(f, s, op->m),
		m ? m->mr->lkey : op->obj,
	};

	mkt_post_recv(&fuzz_pair(f, op->a)->end[s - f->side], &sge, op->b & 1 ? 0 : 1, 2);
}

void fuzz_key(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op)
{
	unsigned int i;

	switch (op->op % FUZZ_NUM_OPS) {
	case FUZZ_CREATE:
		fuzz_create(f, s, op);
		break;
	case FUZZ_ENTRY:
		fuzz_entry(f, s, op);
		break;
	case FUZZ_STRIDE:
		if (f->num_entries)
			f->block[f->num_entries - 1].stride[op->a & 7] =
				op->m & 1 ? -(op->n & 0xfff) : fuzz_number(f, s, op->n);
		break;
	case FUZZ_REPEAT:
		f->num_dims = 1 + (op->a & 7);
		for (i = 0; i < IB_MKEY_MAX_DIMS; i++)
			f->repeat[i] = i == op->b % 8 ? fuzz_number(f, s, op->n) : 1 + op->m % 4;
		break;
	case FUZZ_INDEX:
		for (i = 0; i <= (op->a & 15) && f->num_indices < INDICES; i++)
			f->index[f->num_indices++] = fuzz_number(f, s, op->n) + i * (int8_t)op->b;
		break;
	case FUZZ_BIND:
		fuzz_bind(f, s, op, 1);
		break;
	case FUZZ_BIND_MANY:
		fuzz_bind(f, s, op, 2 + op->m % 4);
		break;
	case FUZZ_BIND_WR:
		fuzz_bind_wr(f, s, op);
		break;
	case FUZZ_UNBIND:
		fuzz_unbind(f, s, op);
		break;
	case FUZZ_QUERY:
		fuzz_query(f, s, op);
		break;
	case FUZZ_POST:
		fuzz_post(f, s, op);
		break;
	case FUZZ_RECV:
		fuzz_recv(f, s, op);
		break;
	}
}
