// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "ways.h"

#define LIST_LENGTH 64	/* requests that one call posts */

static const char *const way_names[NUM_WAYS] = {
	[WAY_ONE_KEY] = "by one key",
	[WAY_PACKED] = "packed",
	[WAY_REQUEST_EACH] = "with a request for each block",
};

/*
 * The ways alternate in every repetition, so that a change of the machine's
 * speed affects all of them.
 */
static const enum way order[NUM_WAYS] = {
	WAY_PACKED, WAY_REQUEST_EACH, WAY_ONE_KEY
};

/* The description of the receiver's region. The blocks of the region follow it. */
struct invitation {
	uint64_t length;
	uint64_t staging_addr;
	uint32_t staging_rkey;
	uint32_t mkey_rkey;
	uint32_t num_blocks;
	double bind_ms;
};

/* Bytes that are contiguous on both sides. */
struct run {
	uint64_t from, to, length;
	uint32_t lkey, rkey;
};

struct sender {
	struct node *node;
	const struct region *region;
	struct invitation far;
	struct run *runs;
	unsigned int num_runs;
	uint8_t *staging;
	struct ibv_mr *staging_mr;
	unsigned int in_flight;		/* signalled requests that have not completed */
	int answered;
};

static uint8_t *new_staging(struct node *node, size_t length, struct ibv_mr **mr)
{
	uint8_t *staging = aligned_alloc(4096, (length + 4095) & ~(size_t)4095);

	if (!staging)
		err(1, "staging buffer of %zu bytes", length);
	*mr = rc_reg(&node->dev, staging, length,
		     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return staging;
}

static void free_staging(uint8_t *staging, struct ibv_mr *mr)
{
	rc_dereg(mr);
	free(staging);
}

/* Divides the bytes into runs that are contiguous on both sides. */
static void find_runs(struct sender *s, const struct block *far_blocks)
{
	const struct block *near_block = s->region->blocks, *far_block = far_blocks;
	uint64_t near_done = 0, far_done = 0, left = s->region->length;

	s->runs = calloc(s->region->num_blocks + s->far.num_blocks,
			 sizeof(*s->runs));
	if (!s->runs)
		err(1, "list of runs");
	while (left) {
		struct run *run = &s->runs[s->num_runs++];

		run->from = near_block->addr + near_done;
		run->lkey = near_block->key;
		run->to = far_block->addr + far_done;
		run->rkey = far_block->key;
		run->length = near_block->length - near_done;
		if (run->length > far_block->length - far_done)
			run->length = far_block->length - far_done;

		left -= run->length;
		near_done += run->length;
		if (near_done == near_block->length) {
			near_block++;
			near_done = 0;
		}
		far_done += run->length;
		if (far_done == far_block->length) {
			far_block++;
			far_done = 0;
		}
	}
}

static void take_completion(struct sender *s)
{
	struct ibv_wc wc = rc_wait(&s->node->conn);

	if (wc.opcode & IBV_WC_RECV)
		s->answered = 1;
	else
		s->in_flight--;
}

/* Adds immediate data to the last request of a transfer, to wake the receiver's program. */
static void make_last(struct ibv_send_wr *wr, enum way way)
{
	wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->imm_data = htonl(way);
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->next = NULL;
}

static void write_one(struct sender *s, enum way by, uint64_t addr, uint32_t lkey,
		      uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = addr,
		.length = s->region->length,
		.lkey = lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = remote_addr, .rkey = rkey },
	};

	make_last(&wr, by);
	s->in_flight++;
	rc_post(&s->node->conn, &wr);
}

static void write_packed(struct sender *s)
{
	uint8_t *to = s->staging;

	for (unsigned int i = 0; i < s->region->num_blocks; i++) {
		const struct block *block = &s->region->blocks[i];

		memcpy(to, (void *)(uintptr_t)block->addr, block->length);
		to += block->length;
	}
	write_one(s, WAY_PACKED, (uintptr_t)s->staging, s->staging_mr->lkey,
		  s->far.staging_addr, s->far.staging_rkey);
}

static void write_runs(struct sender *s)
{
	struct ibv_send_wr wr[LIST_LENGTH];
	struct ibv_sge sge[LIST_LENGTH];
	unsigned int next = 0;

	while (next < s->num_runs) {
		unsigned int n;

		for (n = 0; n < LIST_LENGTH && next < s->num_runs; n++, next++) {
			const struct run *run = &s->runs[next];

			sge[n] = (struct ibv_sge) {
				.addr = run->from,
				.length = run->length,
				.lkey = run->lkey,
			};
			wr[n] = (struct ibv_send_wr) {
				.next = &wr[n + 1],
				.sg_list = &sge[n],
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.wr.rdma = {
					.remote_addr = run->to,
					.rkey = run->rkey,
				},
			};
		}
		/*
		 * One completion frees the whole list's entries in the queue.
		 */
		wr[n - 1].send_flags = IBV_SEND_SIGNALED;
		wr[n - 1].next = NULL;
		if (next == s->num_runs)
			make_last(&wr[n - 1], WAY_REQUEST_EACH);

		while (s->in_flight >= RC_SEND_DEPTH / LIST_LENGTH)
			take_completion(s);
		s->in_flight++;
		rc_post(&s->node->conn, wr);
	}
}

static double send_once(struct sender *s, enum way way)
{
	double start;

	s->answered = 0;
	rc_post_empty_recv(&s->node->conn);
	node_meet(s->node);

	start = now_ms();
	switch (way) {
	case WAY_PACKED:
		write_packed(s);
		break;
	case WAY_REQUEST_EACH:
		write_runs(s);
		break;
	default:
		/* Both keys describe all of the data, from address 0 on. */
		write_one(s, way, 0, s->region->mkey->lkey, 0, s->far.mkey_rkey);
	}
	while (s->in_flight || !s->answered)
		take_completion(s);
	return now_ms() - start;
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct figures ways_send(struct node *node, const struct region *from,
			 unsigned int repetitions)
{
	struct sender s = { .node = node, .region = from };
	struct figures figures = { .bytes = from->length };
	struct block *far_blocks;
	double *times[NUM_WAYS];

	node_hear(node, &s.far, sizeof(s.far));
	if (s.far.length != from->length)
		errx(1, "%llu bytes do not fit the %llu bytes of the destination",
		     (unsigned long long)from->length,
		     (unsigned long long)s.far.length);
	far_blocks = calloc(s.far.num_blocks, sizeof(*far_blocks));
	if (!far_blocks)
		err(1, "the receiver's blocks");
	node_hear(node, far_blocks, s.far.num_blocks * sizeof(*far_blocks));
	find_runs(&s, far_blocks);
	free(far_blocks);
	s.staging = new_staging(node, from->length, &s.staging_mr);

	for (int way = 0; way < NUM_WAYS; way++) {
		times[way] = calloc(repetitions, sizeof(double));
		if (!times[way])
			err(1, "list of times");
	}
	for (unsigned int i = 0; i < repetitions; i++)
		for (int j = 0; j < NUM_WAYS; j++)
			times[order[j]][i] = send_once(&s, order[j]);
	/* Wait until the receiver has checked the last transfer, too. */
	node_meet(node);

	for (int way = 0; way < NUM_WAYS; way++) {
		qsort(times[way], repetitions, sizeof(double), compare_times);
		figures.ms[way] = times[way][repetitions / 2];
		free(times[way]);
	}
	figures.blocks = from->num_blocks > s.far.num_blocks ?
			 from->num_blocks : s.far.num_blocks;
	figures.requests = s.num_runs;
	figures.bind_ms = from->bind_ms + s.far.bind_ms;
	free_staging(s.staging, s.staging_mr);
	free(s.runs);
	return figures;
}

static void unpack(const struct region *to, const uint8_t *staging)
{
	for (unsigned int i = 0; i < to->num_blocks; i++) {
		const struct block *block = &to->blocks[i];

		memcpy((void *)(uintptr_t)block->addr, staging, block->length);
		staging += block->length;
	}
}

static void receive_once(struct node *node, const struct region *to,
			 const uint8_t *staging, enum way way)
{
	struct ibv_send_wr answer = {
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_wc wc = rc_wait(&node->conn);

	if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || ntohl(wc.imm_data) != way)
		errx(1, "data arrived that was not sent %s", way_names[way]);
	if (way == WAY_PACKED)
		unpack(to, staging);
	rc_post(&node->conn, &answer);
	wc = rc_wait(&node->conn);
	if (wc.opcode != IBV_WC_SEND)
		errx(1, "data arrived when none was expected");
}

void ways_receive(struct node *node, const struct region *to,
		  const struct checks *checks, unsigned int repetitions)
{
	struct ibv_mr *staging_mr;
	uint8_t *staging = new_staging(node, to->length, &staging_mr);
	struct invitation invitation = {
		.length = to->length,
		.staging_addr = (uintptr_t)staging,
		.staging_rkey = staging_mr->rkey,
		.mkey_rkey = to->mkey->rkey,
		.num_blocks = to->num_blocks,
		.bind_ms = to->bind_ms,
	};

	node_tell(node, &invitation, sizeof(invitation));
	node_tell(node, to->blocks, to->num_blocks * sizeof(*to->blocks));
	for (unsigned int i = 0; i < repetitions; i++) {
		for (int j = 0; j < NUM_WAYS; j++) {
			const char *wrong;

			checks->reset(checks->context);
			/*
			 * Clear the buffer, so that data of an earlier transfer are
			 * not taken for this one.
			 */
			memset(staging, 0, to->length);
			rc_post_empty_recv(&node->conn);
			node_meet(node);
			receive_once(node, to, staging, order[j]);
			wrong = checks->check(checks->context);
			if (wrong)
				errx(1, "sent %s: %s", way_names[order[j]], wrong);
		}
	}
	node_meet(node);
	free_staging(staging, staging_mr);
}
