// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * 262,144 blocks of 4 bytes at stride 8, written to as many blocks of another process: by an
 * operation for each block, packed, and by one operation between two regions of fi_mr_regv(). All
 * bytes are compared, also those between the blocks. Prints what a block costs in nanoseconds,
 * which are instructions in a guest that counts them (VM_ICOUNT=1).
 *
 * usage: strided ADDRESS       the target, on the device that has ADDRESS
 *        strided -c ADDRESS    the initiator, which connects to it
 */
#include <time.h>

#include "sides.h"

#define BLOCKS 262144
#define BATCH 128	/* operations without waiting */

enum way { EACH, PACKED, KEY, WAYS };

/* every second word is a block */
struct words {
	uint32_t *word, *packed;
	struct fid_mr *mr, *packed_mr, *key;
};

/* what the target tells the initiator */
struct offer {
	uint64_t word, packed, mr, packed_mr, key;
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void report(const char *what, size_t operations, uint64_t start)
{
	printf("%s: %zu operation%s, %.1f ns a block\n", what, operations,
	       operations == 1 ? "" : "s", (double)(now() - start) / BLOCKS);
}

static uint32_t block(size_t i)
{
	return i * 2654435761u + 17;
}

static uint32_t *allocate(struct side *s, size_t words, uint32_t fill, struct fid_mr **mr)
{
	struct iovec iov = { aligned_alloc(4096, words * sizeof(fill)), words * sizeof(fill) };
	uint32_t *word = iov.iov_base;

	if (!word)
		err(1, "memory");
	for (size_t i = 0; i < words; i++)
		word[i] = fill;
	check(reg(s, REGV, &iov, 1, mr), "fi_mr_regv");
	return word;
}

static struct words open_words(struct side *s, uint32_t fill)
{
	struct iovec *iov = calloc(BLOCKS, sizeof(*iov));
	struct words w;
	uint64_t start;

	if (!iov)
		err(1, "memory");
	w.word = allocate(s, 2 * BLOCKS, fill, &w.mr);
	w.packed = allocate(s, BLOCKS, fill, &w.packed_mr);
	for (size_t i = 0; i < BLOCKS; i++)
		iov[i] = (struct iovec){ &w.word[2 * i], sizeof(fill) };
	start = now();
	check(reg(s, REGV, iov, BLOCKS, &w.key), "fi_mr_regv of all blocks");
	report("fi_mr_regv of all blocks", 1, start);
	free(iov);
	return w;
}

static void close_words(struct words *w)
{
	check(fi_close(&w->key->fid), "fi_close of a region");
	check(fi_close(&w->packed_mr->fid), "fi_close of a region");
	check(fi_close(&w->mr->fid), "fi_close of a region");
	free(w->word);
	free(w->packed);
}

static void post_recv(struct side *s)
{
	check(fi_recv(s->ep, NULL, 0, NULL, 0, NULL), "fi_recv");
}

/* tells the other side that this one is done, by an empty message */
static void done(struct side *s)
{
	post_recv(s);
	check(fi_inject(s->ep, NULL, 0, 0), "fi_inject");
}

/* compares all words, and makes them as they were before */
static void compare_words(uint32_t *word)
{
	for (size_t i = 0; i < 2 * BLOCKS; i++) {
		uint32_t want = i % 2 ? GUARD : block(i / 2);

		if (word[i] != want)
			errx(1, "word %zu is 0x%08x instead of 0x%08x", i, word[i], want);
		word[i] = GUARD;
	}
}

static void be_target(const char *address)
{
	struct side s = { 0 };
	struct offer offer;
	struct words to;

	listen_on(&s, address);
	to = open_words(&s, GUARD);
	offer = (struct offer){ (uintptr_t)to.word, (uintptr_t)to.packed, fi_mr_key(to.mr),
				fi_mr_key(to.packed_mr), fi_mr_key(to.key) };
	post_recv(&s);
	check(fi_accept(s.ep, &offer, sizeof(offer)), "fi_accept");
	expect(&s, FI_CONNECTED, NULL, NULL, 0);
	for (enum way way = 0; way < WAYS; way++) {
		wait_for(&s, "the initiator");
		if (way == PACKED) {
			for (size_t i = 0; i < BLOCKS; i++)
				to.word[2 * i] = to.packed[i];
			done(&s);
			wait_for(&s, "the initiator");
		}
		compare_words(to.word);
		done(&s);
	}
	printf("target: the blocks are right, and the bytes between them, by %d ways\n", WAYS);
	expect(&s, FI_SHUTDOWN, NULL, NULL, 0);
	close_words(&to);
	close_side(&s);
}

static void write_each(struct side *s, const struct words *from, const struct offer *to)
{
	for (size_t i = 0; i < BLOCKS;) {
		for (size_t end = i + BATCH; i < end; i++)
			check(fi_write(s->ep, &from->word[2 * i], sizeof(uint32_t),
				       fi_mr_desc(from->mr), 0, to->word + 8 * i, to->mr, NULL),
			      "fi_write of a block");
		for (size_t n = 0; n < BATCH; n++)
			wait_for(s, "fi_write of a block");
	}
}

static void write_packed(struct side *s, const struct words *from, const struct offer *to)
{
	for (size_t i = 0; i < BLOCKS; i++)
		from->packed[i] = from->word[2 * i];
	check(fi_write(s->ep, from->packed, BLOCKS * sizeof(uint32_t), fi_mr_desc(from->packed_mr),
		       0, to->packed, to->packed_mr, NULL), "fi_write of the packed blocks");
	wait_for(s, "fi_write of the packed blocks");
	done(s);
	wait_for(s, "the target, which unpacks");
}

static void write_key(struct side *s, const struct words *from, const struct offer *to)
{
	check(fi_write(s->ep, NULL, BLOCKS * sizeof(uint32_t), fi_mr_desc(from->key), 0, 0, to->key,
		       NULL), "fi_write of a region");
	wait_for(s, "fi_write of a region");
}

static void be_initiator(const char *address)
{
	static const struct {
		void (*write)(struct side *s, const struct words *from, const struct offer *to);
		const char *name;
		size_t operations;
	} ways[] = {
		[EACH] = { write_each, "an operation for each block", BLOCKS },
		[PACKED] = { write_packed, "packed, and unpacked", 1 },
		[KEY] = { write_key, "one key at each side", 1 },
	};
	struct side s = { .info = find(address, false) };
	struct offer offer = { 0 };
	struct words from;
	uint64_t start;

	open_domain(&s);
	open_endpoint(&s);
	from = open_words(&s, ~GUARD);
	for (size_t i = 0; i < BLOCKS; i++)
		from.word[2 * i] = block(i);
	check(fi_connect(s.ep, s.info->dest_addr, NULL, 0), "fi_connect");
	if (expect(&s, FI_CONNECTED, NULL, &offer, sizeof(offer)) < (ssize_t)sizeof(offer))
		errx(1, "no offer");
	for (enum way way = 0; way < WAYS; way++) {
		start = now();
		ways[way].write(&s, &from, &offer);
		report(ways[way].name, ways[way].operations, start);
		done(&s);
		wait_for(&s, "the target, which compares");
	}
	check(fi_shutdown(s.ep, 0), "fi_shutdown");
	close_words(&from);
	close_side(&s);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "-c"))
		be_initiator(argv[2]);
	else if (argc == 2)
		be_target(argv[1]);
	else
		errx(2, "usage: strided [-c] ADDRESS");
	return 0;
}
