/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of the fuzzer share. */
#ifndef MKEY_TEST_FUZZ_OBJECTS_H
#define MKEY_TEST_FUZZ_OBJECTS_H

#include "fuzz.h"
#include "raw.h"

#define PAGE 4096ul
/* of each side: a guard, pages to write, pages to read, pages that come and go, a guard */
#define RW_PAGES 8
#define RO_PAGES 4
#define ODD_PAGES 4
#define PAGES (RW_PAGES + RO_PAGES + ODD_PAGES)
#define MEM_BYTES ((PAGES + 2) * PAGE)

#define MRS 16
#define MWS 4
#define DMS 4
#define PAIRS 4
#define ENTRIES 16
#define INDICES 64
#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
/* the kernel writes and clears up to 64 KiB from a pointer of a command on */
#define OUT_BYTES (256 * 1024)

struct fuzz_mr {
	struct ibv_mr *mr;	/* of a key: own, and nothing of the library */
	bool key;
	uint64_t start, length;	/* the memory of one that may write */
};

struct fuzz_side {
	struct mkt_dev dev[2];	/* the second has another PD */
	uint8_t *mem;
	struct fuzz_mr mr[MRS];
	struct ibv_mw *mw[MWS];
	struct ibv_dm *dm[DMS];
	struct ibv_mr *text;	/* of descriptions for requests, in f->out */
};

struct fuzz {
	struct fuzz_side side[2];
	struct mkt_pair pair[PAIRS];
	struct fuzz_victim victim;
	/* the description that is being made */
	struct ib_uverbs_mkey_block block[ENTRIES];
	uint64_t repeat[IB_MKEY_MAX_DIMS], index[INDICES];
	unsigned int num_entries, num_dims, num_indices;
	const struct fuzz_op *tweak;	/* of the next command */
	uint8_t *out;
	int fd;				/* a dma-buf, or -1 */
};

/* fuzz_objects.c */

/* the object of number @n of those that are there; NULL if there is none */
struct fuzz_mr *fuzz_mr(struct fuzz_side *s, unsigned int n, bool only_keys);
/* an empty place for a new one; NULL if there is none */
struct fuzz_mr *fuzz_place(struct fuzz_side *s);
uint32_t fuzz_lkey(struct fuzz_side *s, unsigned int n);
/* what a number of an input stands for: its highest four bits say how */
uint64_t fuzz_number(struct fuzz *f, struct fuzz_side *s, uint16_t n);
/* @addr if nothing of the process can be there, or an address in @f->out */
uint64_t fuzz_out(struct fuzz *f, uint64_t addr);
/* access flags, mostly the usual ones */
unsigned int fuzz_access(uint8_t flags);
struct mkt_pair *fuzz_pair(struct fuzz *f, unsigned int n);
/* runs @cmd, after the change that FUZZ_TWEAK asked for */
int fuzz_ioctl(struct fuzz *f, struct fuzz_side *s, struct mkt_ioctl *cmd);
/* forgets the description that is being made */
void fuzz_clear(struct fuzz *f);
/* returns false if the MR cannot be destroyed */
bool fuzz_dereg(struct fuzz *f, struct fuzz_side *s, struct fuzz_mr *m);
/* takes completions until none has come for a moment, @rounds times at most */
void fuzz_poll(struct fuzz *f, unsigned int rounds);
/* does an operation of memory, windows or the process itself */
void fuzz_object(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op);

/* fuzz_keys.c: does an operation of keys, or posts a request */

void fuzz_key(struct fuzz *f, struct fuzz_side *s, const struct fuzz_op *op);

#endif /* MKEY_TEST_FUZZ_OBJECTS_H */
