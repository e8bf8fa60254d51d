// SPDX-License-Identifier: GPL-2.0
/*
 * Act 3. Both nodes add to one counter in the device memory of node 1, at the
 * same time: node 0 over the network, node 1 through its own device. Every
 * addition returns the old value, so no two additions may return the same one.
 * For comparison, both nodes also add to a counter in ordinary memory. Short
 * rounds with the one and with the other counter alternate, so that a change of
 * the machine's speed affects both.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "acts.h"

#define ROUNDS 10
#define PER_ROUND 500	/* additions of one node */
#define PER_NODE (ROUNDS * PER_ROUND)
#define TOTAL (2 * PER_NODE)
#define LIST_LENGTH 16	/* requests that one call posts */
#define NUM_WORDS 8	/* the counter, and seven words that must not change */
#define COUNTER 3	/* index of the counter: it has neighbours at both sides */

enum kind {
	DEVICE_MEMORY,
	HOST_MEMORY,
	NUM_KINDS
};

/* The place of the counters, which node 1 sends to node 0. */
struct place {
	uint64_t addr;
	uint32_t rkey;
};

/* The values that one node's additions returned. */
struct findings {
	uint64_t (*found)[PER_NODE];	/* one array for each kind of memory */
	struct ibv_mr *mr;
};

struct counters {
	struct ibv_dm *dm;
	uint64_t words[NUM_WORDS];	/* the words in host memory */
	uint64_t before[NUM_WORDS];	/* initial values of the words in both memories */
	struct ibv_mr *mr[NUM_KINDS];
	struct place place[NUM_KINDS];
};

static struct findings new_findings(struct node *node)
{
	size_t size = NUM_KINDS * sizeof(uint64_t[PER_NODE]);
	struct findings findings = { .found = malloc(size) };

	if (!findings.found)
		err(1, "memory for the results of additions");
	memset(findings.found, 0xff, size);
	findings.mr = rc_reg(&node->dev, findings.found, size,
			     IBV_ACCESS_LOCAL_WRITE);
	return findings;
}

static void free_findings(struct findings *findings)
{
	rc_dereg(findings->mr);
	free(findings->found);
}

/* Adds 1 to the counter at @place PER_ROUND times. The old values go to @found. */
static void add(struct rc_conn *conn, const struct place *place,
		uint64_t *found, uint32_t lkey)
{
	struct ibv_send_wr wr[LIST_LENGTH];
	struct ibv_sge sge[LIST_LENGTH];
	unsigned int next = 0, in_flight = 0;

	while (next < PER_ROUND) {
		unsigned int n;

		for (n = 0; n < LIST_LENGTH && next < PER_ROUND; n++, next++) {
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
		/*
		 * One completion frees the whole list's entries in the queue.
		 */
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

/*
 * Runs one node's part in all rounds. @ms receives the time of both nodes for each
 * kind of memory.
 */
static void add_in_rounds(struct node *node, struct rc_conn *conn,
			  const struct place *place, struct findings *findings,
			  double *ms)
{
	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (int kind = 0; kind < NUM_KINDS; kind++) {
			double start;

			node_meet(node);
			start = now_ms();
			add(conn, &place[kind],
			    &findings->found[kind][round * PER_ROUND],
			    findings->mr->lkey);
			/* The round ends when both nodes have finished. */
			node_meet(node);
			ms[kind] += now_ms() - start;
		}
	}
}

struct counter_figures counter_add(struct node *node)
{
	struct counter_figures figures = { .operations = TOTAL };
	struct findings findings = new_findings(node);
	struct place place[NUM_KINDS];
	double ms[NUM_KINDS] = { 0 };

	node_hear(node, place, sizeof(place));
	add_in_rounds(node, &node->conn, place, &findings, ms);
	for (int kind = 0; kind < NUM_KINDS; kind++)
		node_tell(node, findings.found[kind], sizeof(findings.found[kind]));
	node_hear(node, &figures.device_memory, sizeof(figures.device_memory));
	figures.device_memory_ms = ms[DEVICE_MEMORY];
	figures.host_memory_ms = ms[HOST_MEMORY];
	free_findings(&findings);
	return figures;
}

static void open_counters(struct node *node, struct counters *counters)
{
	struct ibv_alloc_dm_attr attr = {
		.length = sizeof(counters->before),
		.log_align_req = 3,
	};
	const unsigned int access = IBV_ACCESS_LOCAL_WRITE |
				    IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr;
	int ret;

	for (unsigned int i = 0; i < NUM_WORDS; i++)
		counters->before[i] = i == COUNTER ? 0 :
						     0x0101010101010101u * (i + 1);

	counters->dm = ibv_alloc_dm(node->dev.ctx, &attr);
	if (!counters->dm)
		err(1, "ibv_alloc_dm");
	ret = ibv_memcpy_to_dm(counters->dm, 0, counters->before, attr.length);
	if (ret)
		die(ret, "ibv_memcpy_to_dm");
	mr = ibv_reg_dm_mr(node->dev.pd, counters->dm, 0, attr.length,
			   access | IBV_ACCESS_ZERO_BASED);
	if (!mr)
		err(1, "ibv_reg_dm_mr");
	counters->mr[DEVICE_MEMORY] = mr;
	counters->place[DEVICE_MEMORY] = (struct place) {
		.addr = COUNTER * sizeof(uint64_t),
		.rkey = mr->rkey,
	};

	memcpy(counters->words, counters->before, sizeof(counters->words));
	mr = rc_reg(&node->dev, counters->words, sizeof(counters->words), access);
	counters->mr[HOST_MEMORY] = mr;
	counters->place[HOST_MEMORY] = (struct place) {
		.addr = (uintptr_t)&counters->words[COUNTER],
		.rkey = mr->rkey,
	};
}

/* Checks that the additions have returned each value from 0 on, once. */
static void check_found(const uint64_t *near_found, const uint64_t *far_found,
			const char *where)
{
	uint8_t seen[TOTAL] = { 0 };

	for (unsigned int i = 0; i < TOTAL; i++) {
		uint64_t value = i < PER_NODE ? near_found[i] :
						far_found[i - PER_NODE];

		if (value >= TOTAL || seen[value])
			errx(1, "an addition in %s found %llu, %s", where,
			     (unsigned long long)value,
			     value < TOTAL ? "as another one did" :
					     "more than can be");
		seen[value] = 1;
	}
}

static void check_words(const uint64_t *words, const uint64_t *before,
			const char *where)
{
	for (unsigned int i = 0; i < NUM_WORDS; i++) {
		uint64_t expected = before[i] + (i == COUNTER ? TOTAL : 0);

		if (words[i] != expected)
			errx(1, "word %u in %s is %llu instead of %llu", i, where,
			     (unsigned long long)words[i],
			     (unsigned long long)expected);
	}
}

/* Reads the counters, frees them, and returns the one in device memory. */
static uint64_t close_counters(struct counters *counters)
{
	uint64_t words[NUM_WORDS];
	int ret = ibv_memcpy_from_dm(words, counters->dm, 0, sizeof(words));

	if (ret)
		die(ret, "ibv_memcpy_from_dm");
	for (int kind = 0; kind < NUM_KINDS; kind++)
		rc_dereg(counters->mr[kind]);
	ret = ibv_free_dm(counters->dm);
	if (ret)
		die(ret, "ibv_free_dm");
	check_words(words, counters->before, "device memory");
	check_words(counters->words, counters->before, "ordinary memory");
	return words[COUNTER];
}

void counter_host(struct node *node)
{
	static const char *const where[] = { "device memory", "ordinary memory" };
	struct findings findings = new_findings(node);
	uint64_t far_found[PER_NODE], last;
	struct counters counters;
	struct rc_conn loop[2];
	double ms[NUM_KINDS] = { 0 };

	rc_create_loop(loop, &node->dev);
	open_counters(node, &counters);
	node_tell(node, counters.place, sizeof(counters.place));
	add_in_rounds(node, &loop[0], counters.place, &findings, ms);
	for (int kind = 0; kind < NUM_KINDS; kind++) {
		node_hear(node, far_found, sizeof(far_found));
		check_found(findings.found[kind], far_found, where[kind]);
	}
	last = close_counters(&counters);
	node_tell(node, &last, sizeof(last));
	free_findings(&findings);
	rc_destroy_loop(loop);
}
