// SPDX-License-Identifier: GPL-2.0
/*
 * Sequences of calls and requests, with the result of each, as tables: which key portion an MR has,
 * and what is refused. Each sequence has new MRs of the device there.
 */

#include "mkey_reg.h"

/*
 * The bytes of eight pieces, one in each page, have offsets from 0 on. Byte n of them is n. That of
 * the pieces which begin SHIFT bytes later is SHIFTED more, and so on.
 */
#define PIECES 8
#define PIECES_AT 5
#define SHIFT 1000
#define SHIFTED 100

enum object { NONE, KEY, INNER, GAPS, ORDINARY, OBJECTS };

enum op {
	CHOOSE,		/* the key portion, as a kernel user does */
	HAS,		/* the MR's fields have this key portion */
	CHANGED,	/* the same; the peer reads by it, and not by that @before */
	MAP,		/* a key, to bytes of the pieces or of @leaf; chooses the key portion */
	MAP_PIECES,	/* another MR, to all pieces, which begin @at bytes later */
	MAP_EMPTY,	/* the same, but the last piece has no bytes */
	MAP_PAGES,	/* another MR, to the first three pages */
	MAP_LARGE,	/* another MR, to one element in pages of 64 KiB */
	MOVE,		/* the addresses of the MR up */
	MOVE_TO_END,	/* its last byte to the last address */
	REG,		/* REG_MR */
	INV,		/* LOCAL_INV */
	SEND,		/* one byte, by the lkey */
	GET,		/* a READ by the peer, from @at of the MR: byte @byte and those after it */
	GET_0,		/* the same from address 0 */
	PUT,		/* a WRITE by the peer */
	BIND,		/* by a call, to what MAP would map the key to */
	UNBIND,
	DEREG,
};

struct step {
	enum op op;
	enum object mr;
	int portion;	/* of the key, from that of the new MR on */
	int want;	/* the status of a request, or the errno of a call */
	u32 stranger;	/* is added to the rkey: it is that of another MR */
	bool here;	/* the queue pair of the other device posts the request */
	int at;
	u32 length;	/* 0: 1 */
	int byte;
	int access;	/* 0: all */
	enum object leaf;
	int leaf_portion;
	int before;
	int why;	/* the reason of a refusal */
};

#define REFUSED (-1)
#define NO_ACCESS IB_WC_REM_ACCESS_ERR
#define BIND_ERR IB_WC_MW_BIND_ERR
#define READING IB_ACCESS_REMOTE_READ

struct steps {
	struct reg_test *test;
	struct ib_mr *mr[OBJECTS];
	u32 first[OBJECTS];
	u64 gone;	/* the first address of the MR that was deregistered last */
};

static u32 key_of(const struct steps *steps, enum object mr, int portion)
{
	u32 first = steps->first[mr];

	return (first & ~0xff) | ((first + portion) & 0xff);
}

static u64 place(int byte)
{
	return gaps_place(PIECES_AT, byte);
}

static int map_elements(struct reg_side *side, struct ib_mr *mr, int nents)
{
	struct ib_mr *own = side->mr;
	int ret;

	side->mr = mr;
	ret = gaps_map(side);
	side->mr = own;

	return ret < 0 ? ret : ret == nents ? 0 : -EIO;
}

static int map_pages(struct reg_side *side, struct ib_mr *mr)
{
	sg_init_one(side->sg, side->memory, 3 * PAGE_SIZE);
	side->nents = 1;

	return map_elements(side, mr, 1);
}

/* A refused mapping leaves the size of a page as it is. */
static int map_large(struct reg_side *side, struct ib_mr *mr)
{
	int ret = ib_map_mr_sg(mr, side->sg, 1, NULL, SZ_64K);

	return mr->page_size == PAGE_SIZE ? ret : -EIO;
}

static int read_bytes(struct steps *steps, u64 addr, const struct step *step, u32 rkey)
{
	u32 length = step->length ?: 1, i;
	u8 *memory = steps->test->here.memory;
	int ret;

	memset(memory, 0, length);
	ret = reg_rdma_status(steps->test, IB_WR_RDMA_READ, addr, length, rkey);
	for (i = 0; i < length && !ret; i++)
		if (memory[i] != (u8)(step->byte + i))
			ret = -EBADMSG;

	return ret;
}

static int reads_no_more(struct steps *steps, u64 addr, u32 rkey)
{
	int ret = reg_rdma_status(steps->test, IB_WR_RDMA_READ, addr, 1, rkey);

	return ret == NO_ACCESS ? 0 : -EACCES;
}

static int has_key(const struct ib_mr *mr, u32 key)
{
	return mr->rkey == key && mr->lkey == key ? 0 : -EIO;
}

static int send_byte(struct steps *steps, const struct ib_mr *mr, u32 lkey)
{
	struct reg_chain chain = {};

	reg_rdma(&chain, IB_WR_SEND, mr->iova, lkey, 1, 0, 0);

	return reg_status(steps->test, &steps->test->there, &chain);
}

static int run_step(struct steps *steps, const struct step *step)
{
	struct reg_test *test = steps->test;
	struct reg_side *there = &test->there, *by = step->here ? &test->here : there;
	struct ib_mr *mr = steps->mr[step->mr], *leaf = steps->mr[step->leaf];
	u32 rkey = key_of(steps, step->mr, step->portion) ^ step->stranger;
	u64 addr = (mr ? mr->iova : steps->gone) + step->at;
	struct ib_sge range = reg_range(there, place(step->at), step->length ?: 1);
	int access = step->access ?: REG_ACCESS;

	if (leaf) {
		range.addr = leaf->iova + step->at;
		range.lkey = key_of(steps, step->leaf, step->leaf_portion);
	}
	switch (step->op) {
	case CHOOSE:
		ib_update_fast_reg_key(mr, rkey & 0xff);
		return 0;
	case HAS:
		return has_key(mr, rkey);
	case CHANGED:
		return has_key(mr, rkey) ?: read_bytes(steps, addr, step, rkey) ?:
		       reads_no_more(steps, addr, key_of(steps, step->mr, step->before));
	case MAP:
		ib_update_fast_reg_key(mr, rkey & 0xff);
		return ib_map_mkey_list(mr, &range, 1);
	case MAP_PIECES:
		gaps_even(there, PIECES, PIECES_AT + step->at);
		return map_elements(there, mr, PIECES);
	case MAP_EMPTY:
		sg_dma_len(&there->sg[PIECES - 1]) = 0;
		return ib_map_mr_sg(mr, there->sg, PIECES, NULL, PAGE_SIZE);
	case MAP_PAGES:
		return map_pages(there, mr);
	case MAP_LARGE:
		return map_large(there, mr);
	case MOVE:
		mr->iova += 0x1234567800000000;
		return 0;
	case MOVE_TO_END:
		mr->iova = -mr->length;
		return 0;
	case REG:
		return reg_bind_status(test, by, mr, rkey, access);
	case INV:
		return reg_inv_status(test, by, rkey);
	case SEND:
		return send_byte(steps, mr, rkey);
	case GET:
		return read_bytes(steps, addr, step, rkey);
	case GET_0:
		return read_bytes(steps, 0, step, rkey);
	case PUT:
		return reg_rdma_status(test, IB_WR_RDMA_WRITE, addr, 1, rkey);
	case BIND:
		return ib_bind_mkey_list(mr, &range, 1, access);
	case UNBIND:
		return ib_unbind_mkey(mr);
	case DEREG:
		steps->gone = mr->iova;
		return ib_dereg_mr(mr);
	}

	return -EINVAL;
}

static int check_step(struct steps *steps, const struct step *step)
{
	struct ib_uverbs_mkey_refused refused;
	int is = run_step(steps, step);

	if (step->want == REFUSED ? !reg_refused(is) : is != step->want) {
		pr_err("%s: %d, not %d\n", KBUILD_MODNAME, is, step->want);
		return -EIO;
	}
	if (step->op == DEREG && !is)
		steps->mr[step->mr] = NULL;
	if (!step->why)
		return 0;
	expect_is(ib_query_mkey_refused(steps->mr[step->mr], &refused), 0);
	expect_is(refused.reason, step->why);
	expect_is(refused.entry, IB_MKEY_NO_ENTRY);

	return 0;
}

/* A user chooses a key portion for a bind by a call: two of them in turn. */
#define TAKES(now, then) { CHANGED, KEY, now, .before = then, .byte = 40 }
#define BINDS { BIND, KEY, .at = 40 }

static const struct step portions[] = {
	{ CHOOSE, KEY, 1 }, BINDS, TAKES(1, 0),
	{ CHOOSE, KEY, 0 }, BINDS, TAKES(0, 1),
	{ CHOOSE, KEY, 1 }, BINDS, TAKES(1, 0),
	{ CHOOSE, KEY, 0 }, BINDS, TAKES(0, 1),
	{ CHOOSE, KEY, 1 }, BINDS, TAKES(1, 0),
	/* Invalidations leave the fields of ib_mr, which choose no key portion after that. */
	{ INV, KEY, 1 }, { HAS, KEY, 1 }, BINDS, TAKES(2, 1),
	/* A second one finds nothing bound, and changes the key portion once more. */
	{ INV, KEY, 2 }, { INV, KEY, 3 }, { HAS, KEY, 2 }, BINDS, TAKES(4, 2),
	/* The user may still choose one. */
	{ INV, KEY, 4 }, { CHOOSE, KEY, 0x44 }, BINDS, TAKES(0x44, 4),
	/* The one that REG_MR has used is no choice for a later bind by a call. */
	{ INV, KEY, 0x44 }, { MAP, KEY, 0x45, .at = 40 }, { REG, KEY, 0x45 }, BINDS,
	TAKES(0x45, 0x46),
	{ MAP, KEY, 0x46, .at = 40 }, { REG, KEY, 0x46 }, { INV, KEY, 0x46 }, BINDS,
	TAKES(0x47, 0x46),
	/* An unbind by a call replaces what the user chose before. */
	{ CHOOSE, KEY, 0x67 }, { UNBIND, KEY }, { HAS, KEY, 0x48 }, BINDS, TAKES(0x48, 0x47),
};

/* Requests that are refused leave the key its binding and its rkey. */
static const struct step key_refusals[] = {
	{ MAP, KEY, 1, .at = 10 }, { REG, KEY, 1 }, { GET, KEY, 1, .byte = 10 },
	/* No layout is staged under the rkey: it was used up, or is staged under another one. */
	{ REG, KEY, 1, BIND_ERR, .why = IB_UVERBS_MKEY_REASON_NOT_MAPPED },
	{ MAP, KEY, 2, .at = 20 },
	{ REG, KEY, 3, BIND_ERR },
	/* the rkey of another MR; a QP of another device */
	{ REG, KEY, 2, IB_WC_LOC_QP_OP_ERR, .stranger = 0x100 },
	{ REG, KEY, 2, IB_WC_LOC_QP_OP_ERR, .here = true },
	{ GET, KEY, 1, .byte = 10 },
	/* The key does not have this rkey yet. */
	{ INV, KEY, 2, REFUSED },
	{ GET, KEY, 1, .byte = 10 },
	/* The layout is still staged. A request with wrong flags uses it up. */
	{ REG, KEY, 2, BIND_ERR, .access = IB_ACCESS_REMOTE_WRITE,
	  .why = IB_UVERBS_MKEY_REASON_LOCAL_WRITE },
	{ REG, KEY, 2, BIND_ERR },
	{ GET, KEY, 1, .byte = 10 },
	{ MAP, KEY, 3, .at = 20 }, { REG, KEY, 3 }, { GET, KEY, 3, .byte = 20 },
	{ GET, KEY, 1, NO_ACCESS },
	{ INV, KEY, 1, REFUSED },
	{ GET, KEY, 3, .byte = 20 },
	{ INV, KEY, 3 },
	{ GET, KEY, 3, NO_ACCESS },
	/* That has changed the key portion, so the rkey names nothing. */
	{ INV, KEY, 3, REFUSED },
};

/* Leaves that cannot be used are refused when the request executes. */
static const struct step leaf_refusals[] = {
	/* It is not bound, then it is too short, then it has too few access flags. */
	{ MAP, KEY, 1, .leaf = INNER }, { REG, KEY, 1, BIND_ERR },
	{ BIND, INNER, .at = 30, .access = READING },
	{ MAP, KEY, 1, .leaf = INNER, .at = 1 }, { REG, KEY, 1, BIND_ERR, .access = READING },
	{ MAP, KEY, 1, .leaf = INNER }, { REG, KEY, 1, BIND_ERR },
	{ MAP, KEY, 1, .leaf = INNER }, { REG, KEY, 1, .access = READING },
	{ GET, KEY, 1, .byte = 30 },
	/* Another key refers to the inner one: it cannot be bound anew, or unbound. */
	{ MAP, INNER, 1, .at = 31 }, { REG, INNER, 1, BIND_ERR },
	{ INV, INNER, 0, REFUSED },
	{ GET, KEY, 1, .byte = 30 },
	{ DEREG, INNER, .want = -EBUSY },
	{ INV, KEY, 1 },
	{ MAP, INNER, 1, .at = 30 }, { REG, INNER, 1 },
	{ DEREG, INNER },
};

/* The queue pairs are of another PD of the same device. */
static const struct step foreign[] = {
	{ MAP, KEY, 1 }, { REG, KEY, 1, BIND_ERR },
	{ MAP_PIECES, GAPS }, { REG, GAPS, 0, REFUSED },
	{ INV, GAPS, 0, REFUSED },
};

static const struct step list_refusals[] = {
	/* Nothing is mapped. */
	{ REG, GAPS, 0, REFUSED },
	{ MAP_PIECES, GAPS },
	{ REG, GAPS, 1, REFUSED, .here = true },
	{ REG, GAPS, 1, REFUSED, .stranger = 0x100 },
	{ REG, GAPS, 1, REFUSED, .access = IB_ACCESS_FLUSH_PERSISTENT },
	/* It is registered with a key that is not its current rkey, and not registered twice. */
	{ REG, GAPS, 1 },
	{ GET, GAPS, 0, NO_ACCESS },
	{ GET, GAPS, 1 },
	{ REG, GAPS, 1, REFUSED },
	{ INV, GAPS, 0, REFUSED },
	{ INV, GAPS, 1 },
	/* Invalidating once more is harmless. */
	{ INV, GAPS, 1 },
	{ GET, GAPS, 1, NO_ACCESS },
	{ REG, GAPS, 2, .access = READING },
	{ GET, GAPS, 1, NO_ACCESS },
	{ GET, GAPS, 2, .length = PIECES * 64 },
	{ GET, GAPS, 2, NO_ACCESS, .at = -1 },
	{ GET, GAPS, 2, NO_ACCESS, .at = 1, .length = PIECES * 64 },
	{ GET_0, GAPS, 2, NO_ACCESS },
	{ PUT, GAPS, 2, NO_ACCESS },
	{ INV, GAPS, 2 },
	{ SEND, GAPS, 2, IB_WC_LOC_PROT_ERR },
	/* It is deregistered while it is registered. */
	{ REG, GAPS, 3 },
	{ DEREG, GAPS },
	{ GET, GAPS, 3, NO_ACCESS },
};

/*
 * A mapping replaces the one before. One that is made while the MR is registered takes effect with
 * the next registration, and on the fields of the MR at once.
 */
static const struct step mappings[] = {
	{ MAP_PIECES, GAPS },
	{ MAP_PIECES, GAPS, .at = SHIFT },
	{ REG, GAPS, 1 },
	{ GET, GAPS, 1, .at = 64, .byte = 64 + SHIFTED },
	{ MAP_PIECES, GAPS, .at = 2 * SHIFT },
	{ GET, GAPS, 1, .at = 64 - SHIFT, .byte = 64 + SHIFTED },
	/* Both layouts are in use: a refused mapping replaces neither. */
	{ MAP_EMPTY, GAPS, .want = -EINVAL },
	{ GET, GAPS, 1, .at = 64 - SHIFT, .byte = 64 + SHIFTED },
	{ INV, GAPS, 1 },
	{ REG, GAPS, 2 },
	{ GET, GAPS, 2, .length = PIECES * 64, .byte = 2 * SHIFTED },
	/* Without another mapping, the last one is registered again, at other addresses. */
	{ INV, GAPS, 2 },
	{ MOVE, GAPS },
	{ REG, GAPS, 3 },
	{ GET, GAPS, 3, .length = PIECES * 64, .byte = 2 * SHIFTED },
	{ INV, GAPS, 3 },
	{ MOVE_TO_END, GAPS },
	{ REG, GAPS, 4 },
	{ GET, GAPS, 4, .at = PIECES * 64 - 1, .byte = PIECES * 64 - 1 + 2 * SHIFTED },
	{ INV, GAPS, 4 },
};

/* Calls for keys and those for other MRs; a key over an MR that is not registered. */
static const struct step call_refusals[] = {
	{ MAP_PIECES, GAPS },
	{ BIND, GAPS, .want = -EINVAL },
	{ UNBIND, GAPS, .want = -EINVAL },
	{ BIND, KEY, .want = -ERANGE, .leaf = GAPS },
	{ MAP_LARGE, KEY, .want = -EINVAL },
	{ BIND, KEY },
	{ UNBIND, KEY },
	/* No layout is staged. */
	{ REG, KEY, 1, BIND_ERR },
	/* It is deregistered while a list is mapped to it. */
	{ DEREG, GAPS },
};

/* A key over an MR with gaps, which stays registered while the key is bound. */
#define OVER_GAPS .length = 20, .leaf = GAPS
#define GETS_20 { GET, KEY, 0, .length = 20, .byte = 55 }

static const struct step list_leaf[] = {
	{ MAP_PIECES, GAPS },
	{ REG, GAPS, 1, .access = READING },
	{ BIND, KEY, .want = -EACCES, OVER_GAPS, .leaf_portion = 1, .at = 55 },
	{ INV, GAPS, 1 },
	{ REG, GAPS, 2 },
	{ BIND, KEY, .want = -ERANGE, OVER_GAPS, .leaf_portion = 2, .at = -1 },
	{ BIND, KEY, .want = -ERANGE, OVER_GAPS, .leaf_portion = 2, .at = PIECES * 64 - 19 },
	{ BIND, KEY, OVER_GAPS, .leaf_portion = 2, .at = 55 },
	GETS_20,
	/* It is neither invalidated nor deregistered. A mapping takes effect later. */
	{ INV, GAPS, 2, REFUSED },
	{ DEREG, GAPS, .want = -EBUSY },
	{ MAP_PIECES, GAPS, .at = 1000 },
	GETS_20,
	{ UNBIND, KEY },
	{ GET, KEY, 0, NO_ACCESS },
	{ INV, GAPS, 2 },
	{ BIND, KEY, .want = -ERANGE, OVER_GAPS, .leaf_portion = 2, .at = 55 },
};

/* The type that every driver has works as before. A gap ends the mapping. */
static const struct step ordinary[] = {
	{ MAP_PIECES, ORDINARY, .want = -EIO },
	{ MAP_PAGES, ORDINARY },
	{ REG, ORDINARY, 1 },
	{ GET, ORDINARY, 1, .at = PIECES_AT },
	{ GET, ORDINARY, 1, .at = PAGE_SIZE + PIECES_AT, .byte = 64 },
	{ BIND, KEY, .leaf = ORDINARY, .leaf_portion = 1, .at = PIECES_AT },
	{ GET, KEY, 0 },
	/* While the key is bound, no other list can be mapped to the MR. */
	{ MAP_LARGE, ORDINARY, .want = -EBUSY },
	{ UNBIND, KEY },
	{ MAP_PAGES, ORDINARY },
	{ INV, ORDINARY, 1 },
};

static const struct sequence {
	const char *name;
	const struct step *step;
	int num;
	bool foreign;	/* the MRs are of another PD */
} sequences[] = {
	{ "portions", portions, ARRAY_SIZE(portions) },
	{ "key_refusals", key_refusals, ARRAY_SIZE(key_refusals) },
	{ "leaf_refusals", leaf_refusals, ARRAY_SIZE(leaf_refusals) },
	{ "foreign", foreign, ARRAY_SIZE(foreign), true },
	{ "list_refusals", list_refusals, ARRAY_SIZE(list_refusals) },
	{ "mappings", mappings, ARRAY_SIZE(mappings) },
	{ "call_refusals", call_refusals, ARRAY_SIZE(call_refusals) },
	{ "list_leaf", list_leaf, ARRAY_SIZE(list_leaf) },
	{ "ordinary", ordinary, ARRAY_SIZE(ordinary) },
};

static struct ib_mr *alloc(struct ib_pd *pd, enum object mr)
{
	if (mr == KEY || mr == INNER)
		return ib_alloc_mkey(pd, 1);

	return ib_alloc_mr(pd, mr == GAPS ? IB_MR_TYPE_SG_GAPS : IB_MR_TYPE_MEM_REG, PIECES);
}

/* Every MR can be deregistered at the end. */
static int run_sequence(struct reg_test *test, struct ib_pd *pd, const struct sequence *sequence)
{
	struct steps steps = { .test = test };
	int i, ret = 0, gone;

	for (i = KEY; i < OBJECTS && !ret; i++) {
		struct ib_mr *mr = alloc(pd, i);

		if (IS_ERR(mr)) {
			ret = PTR_ERR(mr);
			break;
		}
		steps.mr[i] = mr;
		steps.first[i] = mr->rkey;
	}
	for (i = 0; i < sequence->num && !ret; i++)
		ret = check_step(&steps, &sequence->step[i]);
	if (ret)
		pr_err("%s: %s: step %d fails\n", KBUILD_MODNAME, sequence->name, i);
	for (i = KEY; i < OBJECTS; i++) {
		gone = steps.mr[i] ? ib_dereg_mr(steps.mr[i]) : 0;
		ret = ret ?: gone;
	}

	return ret;
}

/* Runs all sequences. */
int reg_steps(struct reg_test *test)
{
	struct ib_pd *pd = test->there.side->pd, *other;
	int i, ret = 0;

	expect(PTR_ERR(ib_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, 0)) == -EINVAL);
	expect(PTR_ERR(ib_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, U32_MAX)) == -EINVAL);
	reg_fill(test, &test->there);
	for (i = 0; i < 3 * PIECES * 64; i++) {
		int shift = i / (PIECES * 64), byte = i % (PIECES * 64);

		test->there.memory[place(byte) + shift * SHIFT] = byte + shift * SHIFTED;
	}
	other = ib_alloc_pd(test->there.side->device, 0);
	if (IS_ERR(other))
		return PTR_ERR(other);
	for (i = 0; i < ARRAY_SIZE(sequences) && !ret; i++)
		ret = run_sequence(test, sequences[i].foreign ? other : pd, &sequences[i]);
	ib_dealloc_pd(other);

	return ret;
}
