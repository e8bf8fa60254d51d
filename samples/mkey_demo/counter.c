// SPDX-License-Identifier: GPL-2.0
/*
 * Act 3. Both nodes add to one counter in the device memory of node 1, at the
 * same time: node 0 over the network, node 1 through its own device. Every
 * addition returns what it found, so no two may have found the same. Then the
 * same on a counter in ordinary memory, for comparison.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "acts.h"

#define PER_NODE 5000
#define TOTAL (2 * PER_NODE)
#define LIST_LENGTH 16	/* requests posted with one call */
#define DM_BYTES 64	/* the counter and seven words that nobody may touch */
#define DM_WORDS (DM_BYTES / 8)
#define COUNTER 3	/* the counter's word: one with neighbours at both sides */

struct place {
	uint64_t addr;
	uint32_t rkey;
};

/* Adds 1 to @place PER_NODE times; @found gets what was there each time. */
static void add(struct rc_conn *conn, const struct place *place,
		uint64_t *found, uint32_t lkey)
{
	struct ibv_send_wr wr[LIST_LENGTH];
	struct ibv_sge sge[LIST_LENGTH];
	unsigned int next = 0, in_flight = 0;

	while (next < PER_NODE) {
		unsigned int n;

		for (n = 0; n < LIST_LENGTH && next < PER_NODE; n++, next++) {
			sge[n] = (struct ibv_sge) {
				.addr = (uintptr_t)&found[next],
				.length = sizeof(*found),
				.lkey = lkey,
			};
			wr[n] = (struct ibv_send_wr) {
				.next = &wr[n + 1],
				.sg_list = &sge[n],
				.num_sge = 1,
				.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				.wr.atomic = {
					.remote_addr = place->addr,
					.rkey = place->rkey,
					.compare_add = 1,
				},
			};
		}
		wr[n - 1].next = NULL;
		wr[n - 1].send_flags = IBV_SEND_SIGNALED;
		if (in_flight == RC_SEND_DEPTH / LIST_LENGTH) {
			rc_wait(conn);
			in_flight--;
		}
		rc_post(conn, wr);
		in_flight++;
	}
	while (in_flight--)
		rc_wait(conn);
}

/* Node 0's part in one round; returns its length. */
static double add_from_afar(struct node *node, uint64_t *found, struct ibv_mr *mr)
{
	struct place place;
	double start;

	node_hear(node, &place, sizeof(place));
	node_meet(node);
	start = now_ms();
	add(&node->conn, &place, found, mr->lkey);
	/* Over when both are. */
	node_meet(node);
	start = now_ms() - start;
	node_tell(node, found, PER_NODE * sizeof(*found));
	return start;
}

struct counter_figures counter_add(struct node *node)
{
	uint64_t *found = calloc(PER_NODE, sizeof(*found));
	struct counter_figures figures = { .operations = TOTAL };
	struct ibv_mr *mr;
	int ret;

	if (!found)
		err(1, "results");
	mr = rc_reg(&node->dev, found, PER_NODE * sizeof(*found),
		    IBV_ACCESS_LOCAL_WRITE);
	figures.device_memory_ms = add_from_afar(node, found, mr);
	node_hear(node, &figures.device_memory, sizeof(figures.device_memory));
	figures.host_memory_ms = add_from_afar(node, found, mr);
	ret = ibv_dereg_mr(mr);
	if (ret)
		die(ret, "ibv_dereg_mr");
	free(found);
	return figures;
}

/* Each value from 0 on must have been found once. */
static void check_found(const uint64_t *near_found, const uint64_t *far_found)
{
	uint8_t seen[TOTAL] = { 0 };

	for (unsigned int i = 0; i < TOTAL; i++) {
		uint64_t value = i < PER_NODE ? near_found[i] :
						far_found[i - PER_NODE];

		if (value >= TOTAL || seen[value])
			errx(1, "an addition found %llu, %s", (unsigned long long)value,
			     value < TOTAL ? "as another one did" : "more than were made");
		seen[value] = 1;
	}
}

/* Node 1's part in one round, through a connection of its device to itself. */
static void add_at_home(struct node *node, struct rc_conn *loop,
			const struct place *place)
{
	uint64_t *near_found = calloc(PER_NODE, sizeof(*near_found));
	uint64_t *far_found = calloc(PER_NODE, sizeof(*far_found));
	struct ibv_mr *mr;
	int ret;

	if (!near_found || !far_found)
		err(1, "results");
	mr = rc_reg(&node->dev, near_found, PER_NODE * sizeof(*near_found),
		    IBV_ACCESS_LOCAL_WRITE);
	node_tell(node, place, sizeof(*place));
	node_meet(node);
	add(loop, place, near_found, mr->lkey);
	node_meet(node);
	node_hear(node, far_found, PER_NODE * sizeof(*far_found));
	check_found(near_found, far_found);
	ret = ibv_dereg_mr(mr);
	if (ret)
		die(ret, "ibv_dereg_mr");
	free(far_found);
	free(near_found);
}

static uint64_t check_words(const uint64_t *words, const uint64_t *before,
			    const char *what)
{
	for (unsigned int i = 0; i < DM_WORDS; i++) {
		uint64_t expected = before[i] + (i == COUNTER ? TOTAL : 0);

		if (words[i] != expected)
			errx(1, "word %u of %s is %llu instead of %llu", i, what,
			     (unsigned long long)words[i],
			     (unsigned long long)expected);
	}
	return words[COUNTER];
}

static uint64_t add_in_device_memory(struct node *node, struct rc_conn *loop,
				     const uint64_t *before)
{
	struct ibv_alloc_dm_attr attr = { .length = DM_BYTES, .log_align_req = 3 };
	struct ibv_dm *dm = ibv_alloc_dm(node->dev.ctx, &attr);
	struct place place = { .addr = COUNTER * 8 };
	uint64_t words[DM_WORDS];
	struct ibv_mr *mr;
	int ret;

	if (!dm)
		err(1, "ibv_alloc_dm");
	ret = ibv_memcpy_to_dm(dm, 0, before, DM_BYTES);
	if (ret)
		die(ret, "ibv_memcpy_to_dm");
	mr = ibv_reg_dm_mr(node->dev.pd, dm, 0, DM_BYTES,
			   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		err(1, "ibv_reg_dm_mr");
	place.rkey = mr->rkey;
	add_at_home(node, loop, &place);

	ret = ibv_memcpy_from_dm(words, dm, 0, DM_BYTES);
	if (!ret)
		ret = ibv_dereg_mr(mr);
	if (!ret)
		ret = ibv_free_dm(dm);
	if (ret)
		die(ret, "reading and freeing device memory");
	return check_words(words, before, "device memory");
}

static void add_in_host_memory(struct node *node, struct rc_conn *loop,
			       const uint64_t *before)
{
	uint64_t words[DM_WORDS] __attribute__((aligned(8)));
	struct place place = { .addr = (uintptr_t)&words[COUNTER] };
	struct ibv_mr *mr;
	int ret;

	memcpy(words, before, sizeof(words));
	mr = rc_reg(&node->dev, words, sizeof(words),
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	place.rkey = mr->rkey;
	add_at_home(node, loop, &place);
	ret = ibv_dereg_mr(mr);
	if (ret)
		die(ret, "ibv_dereg_mr");
	check_words(words, before, "ordinary memory");
}

void counter_host(struct node *node)
{
	uint64_t before[DM_WORDS], last;
	struct rc_conn loop[2];

	for (unsigned int i = 0; i < DM_WORDS; i++)
		before[i] = i == COUNTER ? 0 : 0x0101010101010101u * (i + 1);
	rc_create_loop(loop, &node->dev);
	last = add_in_device_memory(node, &loop[0], before);
	node_tell(node, &last, sizeof(last));
	add_in_host_memory(node, &loop[0], before);
	rc_destroy(&loop[0]);
	rc_destroy(&loop[1]);
}
