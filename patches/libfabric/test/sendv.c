// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Headers and payloads by libfabric: each message of fi_sendv() is a header of a registered pool
 * and a part of a region of several buffers. fi_recvv() of the other process splits it at another
 * place. Then both processes close their regions, unmap the memory, map new memory at the same
 * addresses, and do the same again. A cache of registrations must not give them the old MRs. All
 * bytes are compared, also those between the buffers.
 *
 * usage: sendv ADDRESS       the target, on the device that has ADDRESS
 *        sendv -c ADDRESS    the initiator, which connects to it
 *
 * FI_MR_CACHE_MONITOR=disabled: without a cache.
 */
#include "sides.h"

#define HEADER 200
#define ROUNDS 2

static const struct piece payload[] = { { 40000, 7001 }, { 11, 1 }, { 20001, 12000 }, { 1000, 998 } };
static const struct piece inbox[] = { { 3, 4097 }, { 50000, 15000 }, { 30001, 903 } };
static const struct piece pool[] = { { 0, 8 * HEADER } };
static const struct piece front[] = { { 8, 400 } };

/* @header bytes of a header and @length bytes from @from on; the target's first buffer has @split */
static const struct message {
	size_t header, from, length, split;
} messages[] = {
	{ HEADER, 0, LENGTH, 350 },
	{ HEADER, 6999, 5000, 120 },
	{ HEADER, 4000, 1, HEADER },
	/* short enough to be copied into the request, which the CPU cannot do for a key */
	{ 40, 7000, 20, 50 },
};

static unsigned int first_header(unsigned int round)
{
	return 3 + 100 * round;
}

static unsigned int first_payload(unsigned int round)
{
	return 17 + 50 * round;
}

/* byte @n of message @i */
static uint8_t byte_of(unsigned int round, unsigned int i, size_t n)
{
	const struct message *m = &messages[i];

	return n < m->header ? pattern(first_header(round), HEADER * i + n) :
			       pattern(first_payload(round), m->from + n - m->header);
}

/* checks that a cache returns the MR of a buffer that is still there, and without a cache a new one */
static void reuse(struct side *s, struct memory *m, const struct piece *piece)
{
	const char *monitor = getenv("FI_MR_CACHE_MONITOR");
	bool cached = !monitor || strcmp(monitor, "disabled");
	uint64_t key = fi_mr_key(m->mr);

	check(fi_close(&m->mr->fid), "fi_close of a region");
	register_again(s, m, REGV, piece, 1);
	if ((fi_mr_key(m->mr) == key) != cached)
		errx(1, "key 0x%lx, then 0x%lx, %s a cache", (long)key, (long)fi_mr_key(m->mr),
		     cached ? "with" : "without");
}

/* the memory of both regions of a side, in two rounds */
struct store {
	void *where[2];
	uint64_t key;
	struct memory *one, *several;
};

static void open_store(struct store *store, struct side *s, unsigned int round,
		       const struct piece *one, int first_one, const struct piece *several,
		       size_t count, int first_several)
{
	store->one = region_at(s, store->where[0], REGV, one, 1, GUARD, first_one);
	if (round && fi_mr_key(store->one->mr) == store->key)
		errx(1, "new memory has the MR of the old memory");
	store->several = region_at(s, store->where[1], REGATTR, several, count, GUARD,
				   first_several);
	reuse(s, store->one, one);
	store->key = fi_mr_key(store->one->mr);
	store->where[0] = store->one->bytes;
	store->where[1] = store->several->bytes;
}

static void close_store(struct store *store)
{
	release(store->several);
	release(store->one);
}

static void post_recvv(struct side *s, const struct store *store, unsigned int i)
{
	const struct message *m = &messages[i];
	struct iovec iov[] = {
		{ store->one->bytes + front[0].at, m->split },
		{ (void *)0, m->header + m->length - m->split },
	};
	void *desc[] = { fi_mr_desc(store->one->mr), fi_mr_desc(store->several->mr) };

	check(fi_recvv(s->ep, iov, desc, 2, 0, NULL), "fi_recvv");
}

static void be_target(const char *address)
{
	struct store store = { 0 };
	struct side s = { 0 };
	struct memory *to;
	unsigned int round, i;
	size_t n;

	listen_on(&s, address);
	for (round = 0; round < ROUNDS; round++) {
		open_store(&store, &s, round, front, -1, inbox, COUNT(inbox), -1);
		for (i = 0; i < COUNT(messages); i++) {
			const struct message *m = &messages[i];

			post_recvv(&s, &store, i);
			if (!round && !i) {
				check(fi_accept(s.ep, NULL, 0), "fi_accept");
				expect(&s, FI_CONNECTED, NULL, NULL, 0);
			}
			wait_for(&s, "fi_recvv");
			for (n = 0; n < m->header + m->length; n++) {
				to = n < m->split ? store.one : store.several;
				to->want[to->pos[n < m->split ? n : n - m->split]] =
					byte_of(round, i, n);
			}
			compare(store.one, "the first buffer");
			compare(store.several, "the other buffers");
		}
		close_store(&store);
	}
	printf("target: %zu messages, and as many to new memory at the same addresses\n",
	       COUNT(messages));
	expect(&s, FI_SHUTDOWN, NULL, NULL, 0);
	close_side(&s);
}

static void be_initiator(const char *address)
{
	struct side s = { .info = find(address, false) };
	struct store store = { 0 };
	unsigned int round, i;

	open_domain(&s);
	open_endpoint(&s);
	for (round = 0; round < ROUNDS; round++) {
		open_store(&store, &s, round, pool, first_header(round), payload, COUNT(payload),
			   first_payload(round));
		if (!round) {
			check(fi_connect(s.ep, s.info->dest_addr, NULL, 0), "fi_connect");
			expect(&s, FI_CONNECTED, NULL, NULL, 0);
		}
		for (i = 0; i < COUNT(messages); i++) {
			const struct message *m = &messages[i];
			struct iovec iov[] = {
				{ store.one->bytes + HEADER * i, m->header },
				{ (void *)m->from, m->length },
			};
			void *desc[] = { fi_mr_desc(store.one->mr), fi_mr_desc(store.several->mr) };

			check(fi_sendv(s.ep, iov, desc, 2, 0, NULL), "fi_sendv");
			wait_for(&s, "fi_sendv");
		}
		compare(store.one, "the headers");
		compare(store.several, "the payload");
		close_store(&store);
	}
	printf("initiator: headers of a pool and payloads of %zu buffers sent\n", COUNT(payload));
	check(fi_shutdown(s.ep, 0), "fi_shutdown");
	close_side(&s);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "-c"))
		be_initiator(argv[2]);
	else if (argc == 2)
		be_target(argv[1]);
	else
		errx(2, "usage: sendv [-c] ADDRESS");
	return 0;
}
