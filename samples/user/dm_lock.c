// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A lock, a record and a counter in device memory. Two nodes use them at the
 * same time with one-sided operations only. The node that has the memory
 * accesses it through its own device, the other node over the network.
 *
 * usage: dm_lock [-n OPERATIONS] DEVICE		has the memory
 *        dm_lock [-n OPERATIONS] DEVICE HOST	joins the one on HOST
 *
 * The lock is a word that only compare-and-swap changes. Its lower half names
 * the owner, its upper half the heir. A node that finds the lock taken becomes
 * the heir if there is none. The owner hands the lock to the heir. So no node
 * gets the lock twice while another node is the heir.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/mkey.h>

#include "peer.h"

#define NODES 2
#define ADDITIONS 9			/* additions to the counter for each update */
#define OPERATIONS (1 + ADDITIONS)	/* operations of one turn */

/* The record that the lock protects: six words that belong together. */
struct record {
	uint64_t updates;
	uint64_t of[NODES];	/* number of updates of each node */
	uint64_t turns;		/* number of updates that followed one of another node */
	uint64_t last;		/* the node of the last update */
	uint64_t check;		/* checksum of the other words */
};

/* The contents of the device memory. */
struct shared {
	uint64_t lock;
	struct record record;
	uint64_t counter;
	uint64_t guard;		/* a value that no operation may change */
};

#define GUARD 0x0123456789abcdef

/* A node's ordinary memory, which receives the results of its operations. */
struct local {
	uint64_t found;
	struct record record;
	uint64_t counted[];	/* old values of the counter, which the additions return */
};

struct node {
	uint64_t id;		/* from 1 on; 0 in the lock means no node */
	unsigned int turns;
	struct rc_dev dev;
	struct rc_conn *conn;	/* connection to the device that has the memory */
	uint32_t rkey;
	struct local *local;
	struct ibv_mr *local_mr;
	size_t local_size;
};

static uint64_t check_of(const struct record *record)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < offsetof(struct record, check) / sizeof(sum); i++)
		sum = sum * 31 + ((const uint64_t *)record)[i];
	return ~sum;
}

/* Makes a request that copies between a part of the device memory and the local memory. */
static struct ibv_send_wr request(struct node *node, struct ibv_sge *sge,
				  enum ibv_wr_opcode opcode, size_t offset,
				  void *here, size_t length)
{
	struct ibv_send_wr wr = {
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.wr.rdma = { .remote_addr = offset, .rkey = node->rkey },
	};

	*sge = (struct ibv_sge) {
		.addr = (uintptr_t)here,
		.length = length,
		.lkey = node->local_mr->lkey,
	};
	return wr;
}

/* Makes a request for an atomic operation on one word of the device memory. */
static struct ibv_send_wr atomic_request(struct node *node, struct ibv_sge *sge,
					 enum ibv_wr_opcode opcode, size_t offset,
					 uint64_t *found, uint64_t compare_add,
					 uint64_t swap)
{
	struct ibv_send_wr wr = request(node, sge, opcode, offset, found,
					sizeof(*found));

	wr.wr.atomic.remote_addr = offset;
	wr.wr.atomic.rkey = node->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	return wr;
}

/* Posts the requests from @first to @last, in this order, and waits for them. */
static void run(struct node *node, struct ibv_send_wr *first,
		struct ibv_send_wr *last)
{
	last->send_flags = IBV_SEND_SIGNALED;
	rc_post(node->conn, first);
	rc_wait(node->conn);
}

static struct ibv_send_wr swap_request(struct node *node, struct ibv_sge *sge,
				       uint64_t expected, uint64_t desired)
{
	return atomic_request(node, sge, IBV_WR_ATOMIC_CMP_AND_SWP,
			      offsetof(struct shared, lock), &node->local->found,
			      expected, desired);
}

/* Replaces the lock by @desired if it is @expected. Returns the old value. */
static uint64_t swap_lock(struct node *node, uint64_t expected, uint64_t desired)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = swap_request(node, &sge, expected, desired);

	run(node, &wr, &wr);
	return node->local->found;
}

static uint64_t owner_of(uint64_t lock)
{
	return lock & 0xffffffff;
}

static uint64_t heir_of(uint64_t lock)
{
	return lock >> 32;
}

static void read_record(struct node *node)
{
	struct record *record = &node->local->record;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	wr = request(node, &sge, IBV_WR_RDMA_READ, offsetof(struct shared, record),
		     record, sizeof(*record));
	run(node, &wr, &wr);
}

/* Takes the lock. Returns the largest possible number of updates at that time. */
static uint64_t lock(struct node *node)
{
	uint64_t seen = 0, most = UINT64_MAX;
	unsigned int longest = 20;

	for (;;) {
		uint64_t next = seen, found;

		if (!owner_of(seen))
			next = node->id;
		else if (!heir_of(seen))
			next = seen | node->id << 32;
		/* If @next equals @seen, the swap only reads the lock. */
		found = swap_lock(node, seen, next);
		if (found == seen && next != seen) {
			found = next;
			if (owner_of(found) != node->id) {
				/*
				 * Only the owner's turn comes before that of
				 * its heir.
				 */
				read_record(node);
				most = node->local->record.updates + 1;
			}
		}
		if (owner_of(found) == node->id)
			return most;
		seen = found;
		if (!heir_of(seen))
			continue;
		/*
		 * Each request keeps the device busy, which the owner needs, too. So double
		 * the wait each time, up to a limit. The wait is random, so that the nodes
		 * do not try at the same times.
		 */
		usleep(longest / 2 + random() % longest);
		if (longest < 640)
			longest *= 2;
	}
}

/* Writes the record, then unlocks. The device executes the requests of a queue pair in order. */
static void write_and_unlock(struct node *node)
{
	struct record *record = &node->local->record;
	size_t half = sizeof(*record) / 2, offset = offsetof(struct shared, record);
	struct ibv_send_wr wr[3];
	struct ibv_sge sge[3];
	uint64_t seen;

	/*
	 * Write the record in two pieces, so that a reader that ignores the lock may find
	 * one piece without the other.
	 */
	wr[0] = request(node, &sge[0], IBV_WR_RDMA_WRITE, offset, record, half);
	wr[1] = request(node, &sge[1], IBV_WR_RDMA_WRITE, offset + half,
			(char *)record + half, half);
	wr[2] = swap_request(node, &sge[2], node->id, 0);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	run(node, wr, &wr[2]);

	seen = node->local->found;
	if (seen == node->id)
		return;
	/* The swap failed because there is an heir. Only the owner can make it the owner. */
	if (swap_lock(node, seen, heir_of(seen)) != seen)
		errx(1, "the lock was changed by a node that does not own it");
}

/* Updates the record once, under the lock. */
static void update(struct node *node)
{
	struct record *record = &node->local->record;
	uint64_t most = lock(node);

	read_record(node);
	if (record->updates > most)
		errx(1, "node %d was the heir and passed over", (int)node->id);
	if (record->check != check_of(record) ||
	    record->updates != record->of[0] + record->of[1])
		errx(1, "node %d finds a record that is not whole", (int)node->id);
	record->updates++;
	record->of[node->id - 1]++;
	record->turns += record->last != node->id;
	record->last = node->id;
	record->check = check_of(record);
	write_and_unlock(node);
}

/* Adds 1 to the counter ADDITIONS times. The old values go to @counted. */
static void add(struct node *node, uint64_t *counted)
{
	struct ibv_send_wr wr[ADDITIONS];
	struct ibv_sge sge[ADDITIONS];

	for (int i = 0; i < ADDITIONS; i++) {
		wr[i] = atomic_request(node, &sge[i], IBV_WR_ATOMIC_FETCH_AND_ADD,
				       offsetof(struct shared, counter),
				       &counted[i], 1, 0);
		wr[i].next = i + 1 < ADDITIONS ? &wr[i + 1] : NULL;
	}
	run(node, wr, &wr[ADDITIONS - 1]);
}

static void work(struct node *node)
{
	for (unsigned int turn = 0; turn < node->turns; turn++) {
		update(node);
		add(node, &node->local->counted[turn * ADDITIONS]);
	}
}

static void open_node(struct node *node, const char *device)
{
	int ret;

	rc_open(&node->dev, device);
	ret = ibmkey_enable(node->dev.ctx);
	if (ret)
		die(ret, "ibmkey_enable");
	node->local_size = sizeof(struct local) +
			   node->turns * ADDITIONS * sizeof(uint64_t);
	node->local = calloc(1, node->local_size);
	if (!node->local)
		err(1, "memory for the results of additions");
	node->local_mr = rc_reg(&node->dev, node->local, node->local_size,
				IBV_ACCESS_LOCAL_WRITE);
	srandom(node->id);
}

static void close_node(struct node *node)
{
	rc_dereg(node->local_mr);
	free(node->local);
	rc_close(&node->dev);
}

/* Checks that no two additions returned the same value, and that the counter has all of them. */
static void check_counted(const uint64_t *counted, uint64_t number, uint8_t *seen,
			  uint64_t total)
{
	for (uint64_t i = 0; i < number; i++) {
		if (counted[i] >= total || seen[counted[i]])
			errx(1, "an addition found %llu, %s",
			     (unsigned long long)counted[i],
			     counted[i] < total ? "as another one did" :
						  "more than can be");
		seen[counted[i]] = 1;
	}
}

static void check_shared(const struct shared *shared, unsigned int turns)
{
	const struct record *record = &shared->record;

	if (shared->lock || shared->guard != GUARD)
		errx(1, "the lock is %#llx, the guard %#llx",
		     (unsigned long long)shared->lock,
		     (unsigned long long)shared->guard);
	if (record->check != check_of(record) || record->updates != NODES * turns ||
	    record->of[0] != turns || record->of[1] != turns)
		errx(1, "%llu updates of %u, %llu and %llu", (unsigned long long)record->updates,
		     NODES * turns, (unsigned long long)record->of[0],
		     (unsigned long long)record->of[1]);
	if (shared->counter != (uint64_t)NODES * turns * ADDITIONS)
		errx(1, "the counter is %llu", (unsigned long long)shared->counter);
}

/* Runs the node that has the memory. */
static void host(struct node *node)
{
	struct ibv_alloc_dm_attr attr = {
		.length = sizeof(struct shared),
		.log_align_req = 3,
	};
	uint64_t number = (uint64_t)node->turns * ADDITIONS, total = NODES * number;
	struct shared shared = { .guard = GUARD };
	int listener = peer_listen(), sock = peer_accept(listener), ret;
	struct rc_conn conn, loop[2];
	uint64_t *theirs = calloc(number, sizeof(*theirs));
	uint8_t *seen = calloc(total, 1);
	struct ibv_dm *dm;
	struct ibv_mr *mr;

	if (!theirs || !seen)
		err(1, "memory for the results of additions");
	close(listener);
	rc_create_loop(loop, &node->dev);
	node->conn = &loop[0];
	peer_link(&conn, &node->dev, sock, "the other node");

	dm = ibv_alloc_dm(node->dev.ctx, &attr);
	if (!dm)
		err(1, "ibv_alloc_dm");
	shared.record.check = check_of(&shared.record);
	ret = ibv_memcpy_to_dm(dm, 0, &shared, sizeof(shared));
	if (ret)
		die(ret, "ibv_memcpy_to_dm");
	mr = ibv_reg_dm_mr(node->dev.pd, dm, 0, sizeof(shared),
			   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		err(1, "ibv_reg_dm_mr");
	node->rkey = mr->rkey;
	peer_tell(sock, &node->turns, sizeof(node->turns));
	peer_tell(sock, &node->rkey, sizeof(node->rkey));

	peer_meet(sock);
	work(node);
	peer_meet(sock);

	peer_hear(sock, theirs, number * sizeof(*theirs));
	ret = ibv_memcpy_from_dm(&shared, dm, 0, sizeof(shared));
	if (ret)
		die(ret, "ibv_memcpy_from_dm");
	check_counted(node->local->counted, number, seen, total);
	check_counted(theirs, number, seen, total);
	check_shared(&shared, node->turns);
	printf("%u operations of two nodes in device memory, none lost: %llu updates under a lock that changed hands %llu times, %llu additions\n",
	       NODES * node->turns * OPERATIONS,
	       (unsigned long long)shared.record.updates,
	       (unsigned long long)shared.record.turns,
	       (unsigned long long)shared.counter);

	rc_dereg(mr);
	ret = ibv_free_dm(dm);
	if (ret)
		die(ret, "ibv_free_dm");
	rc_destroy(&conn);
	rc_destroy_loop(loop);
	peer_meet(sock);
	close(sock);
	free(theirs);
	free(seen);
}

/* Runs the other node. */
static void join(struct node *node, const char *where)
{
	int sock = peer_connect(where);
	struct rc_conn conn;
	unsigned int turns;

	peer_link(&conn, &node->dev, sock, "the node with the memory");
	node->conn = &conn;
	peer_hear(sock, &turns, sizeof(turns));
	if (turns != node->turns)
		errx(1, "the other node was started for another number of operations");
	peer_hear(sock, &node->rkey, sizeof(node->rkey));

	peer_meet(sock);
	work(node);
	peer_meet(sock);

	peer_tell(sock, node->local->counted, turns * ADDITIONS * sizeof(uint64_t));
	/* The other node may have found an error that this node cannot see. */
	peer_meet(sock);
	close(sock);
	rc_destroy(&conn);
}

int main(int argc, char **argv)
{
	unsigned int operations = 100000;
	struct node node = { 0 };
	int option;

	while ((option = getopt(argc, argv, "n:")) != -1)
		operations = option == 'n' ? strtoul(optarg, NULL, 10) : 0;
	argc -= optind;
	argv += optind;
	node.turns = operations / NODES / OPERATIONS;
	if (!node.turns || node.turns > 1000000 || argc < 1 || argc > 2)
		errx(2, "usage: dm_lock [-n OPERATIONS] DEVICE [HOST]");

	node.id = argc;
	open_node(&node, argv[0]);
	if (argc == 1)
		host(&node);
	else
		join(&node, argv[1]);
	close_node(&node);
	return 0;
}
