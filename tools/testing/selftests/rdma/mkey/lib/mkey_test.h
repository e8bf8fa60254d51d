/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The library of the ib_mkey selftests: two devices and queue pairs between
 * them, memory with an expected value for every byte, a reference
 * implementation of layouts, and transfers that are checked against it.
 *
 * Functions that return int return 0 or an errno value unless they say
 * otherwise. On an error they print a "# ..." line with the reason.
 */
#ifndef MKEY_TEST_H
#define MKEY_TEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <infiniband/mkey.h>

/* env.c: the settings of a run, and random numbers that can be repeated */

/* MKEY_TEST_QUICK: 0, 1 for a short run, 2 for a very short one */
unsigned int mkt_quick(void);
unsigned int mkt_scale(unsigned int normal, unsigned int quick);
/* the same for a number of rounds: a third of @quick in a very short run */
unsigned int mkt_rounds(unsigned int normal, unsigned int quick);

struct mkt_rng {
	uint64_t state;
};

/*
 * The seed is MKEY_TEST_SEED, or one that the program draws, mixed with @salt.
 * So a test draws the same numbers whichever tests ran before it. Prints the
 * seed.
 */
void mkt_rng_init(struct mkt_rng *rng, const char *salt);
uint64_t mkt_rand(struct mkt_rng *rng);
/* both ends are included */
uint64_t mkt_between(struct mkt_rng *rng, uint64_t low, uint64_t high);
/* 1..@max; every power of two has the same probability */
uint64_t mkt_rand_size(struct mkt_rng *rng, uint64_t max);
void mkt_rand_bytes(struct mkt_rng *rng, void *to, size_t length);

void mkt_diag(const char *format, ...) __attribute__((format(printf, 1, 2)));
/*
 * Prints a line if none was printed by this function for a minute. Loops call it, so
 * that a runner can tell a slow test from one that hangs.
 */
void mkt_alive(void);
/*
 * reads the first line that a command prints; false if it fails or prints none
 */
bool mkt_command(char *line, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* dev.c: the two devices */

struct mkt_dev {
	char name[64];
	char netns[64];
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	union ibv_gid gid;
	uint8_t gid_index;
	enum ibv_mtu max_mtu;
	/*
	 * ib_mkey extends the device; otherwise the following fields are zero
	 */
	bool extended;
	struct ibmkey_caps caps;
};

/*
 * Opens device 0 or 1: rxe0 and rxe1, or MKEY_TEST_DEV0 and MKEY_TEST_DEV1. If
 * the current network namespace does not show it, opens it from namespace ns0
 * or ns1, or MKEY_TEST_NETNS0 and MKEY_TEST_NETNS1.
 */
int mkt_dev_open(struct mkt_dev *dev, unsigned int which);
/* the same without a message, for programs that skip if there is no device */
int mkt_dev_try_open(struct mkt_dev *dev, unsigned int which);
void mkt_dev_close(struct mkt_dev *dev);
/* opens another context of the device with libibverbs; NULL if that fails */
struct ibv_context *mkt_dev_reopen(const struct mkt_dev *dev);

/*
 * number of objects of one kind ("qp", "mr", ...) of the device, -1 if unknown
 */
int mkt_dev_count(const struct mkt_dev *dev, const char *kind);
/* the value of a counter of the device ("sent_pkts", ...), 0 if it has none */
unsigned long mkt_dev_counter(const struct mkt_dev *dev, const char *name);

/*
 * A test may run on two machines, each with one of the devices (preload/two). Whatever
 * it finds out about a device other than by verbs, it finds out on the machine that has
 * the device, and shares it. On one machine every device is here.
 */
bool mkt_dev_here(const struct mkt_dev *dev);
/* gives the other machine the bytes that are at @data where @dev is */
void mkt_share(const struct mkt_dev *dev, void *data, size_t length);
/*
 * Runs @run in a thread where @dev is. The calls of the thread are for @dev only, and what
 * it writes is on that machine only. Returns 0 or errno.
 */
int mkt_dev_thread(const struct mkt_dev *dev, pthread_t *tid, void *(*run)(void *), void *arg);
void mkt_dev_join(const struct mkt_dev *dev, pthread_t tid);
/* @dev may change memory that is in no ordinary MR; the other machine sees it, too */
void mkt_watch(const struct mkt_dev *dev, void *addr, size_t length);

/* qp.c: queue pairs */

#define MKT_DEPTH 128
#define MKT_MAX_SGE 8

/* the address of a queue pair, for the other side */
struct mkt_peer {
	union ibv_gid gid;
	uint32_t qp_num;
	uint32_t psn;
};

struct mkt_qp {
	struct mkt_dev *dev;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct mkt_peer peer;
	uint32_t psn;
	unsigned int flags;
};

#define MKT_QP_SRQ (1u << 0)
#define MKT_QP_UD (1u << 1)
#define MKT_QP_UC (1u << 2)
/* retransmits early and without limit, for a network that loses packets */
#define MKT_QP_LOSSY (1u << 3)
/* never retransmits, for slow peers */
#define MKT_QP_PATIENT (1u << 4)
/* reports within 15 seconds that its peer is gone */
#define MKT_QP_BRIEF (1u << 5)

#define MKT_QKEY 0x1ee7

int mkt_qp_create(struct mkt_qp *qp, struct mkt_dev *dev, unsigned int flags);
void mkt_qp_self(const struct mkt_qp *qp, struct mkt_peer *self);
int mkt_qp_connect(struct mkt_qp *qp, const struct mkt_peer *peer,
		   enum ibv_mtu mtu);
void mkt_qp_destroy(struct mkt_qp *qp);

struct mkt_pair {
	struct mkt_qp end[2];
	enum ibv_mtu mtu;
};

/* side 0 is on @dev0, side 1 on @dev1; both have the MKT_QP_* @flags */
int mkt_pair_create(struct mkt_pair *pair, struct mkt_dev *dev0,
		    struct mkt_dev *dev1, enum ibv_mtu mtu, unsigned int flags);
/* after an error: resets both, connects them again and drops completions */
int mkt_pair_recover(struct mkt_pair *pair);
void mkt_pair_destroy(struct mkt_pair *pair);

static inline size_t mkt_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/*
 * What is waited for as long without anything happening does not come. On a busy
 * machine the slowest of all takes a tenth of it.
 */
#define MKT_STALL_SECONDS 180
/*
 * Pauses of a millisecond. Each takes 4 in an emulated guest, which has no timers of high
 * resolution.
 */
#define MKT_STALL_PAUSES (MKT_STALL_SECONDS * 250)

/* wr.c: work requests */

enum mkt_op {
	MKT_SEND,
	MKT_SEND_IMM,
	MKT_WRITE,
	MKT_WRITE_IMM,
	MKT_READ,
	MKT_FETCH_ADD,
	MKT_CMP_SWAP,
	MKT_ATOMIC_WRITE,
	MKT_FLUSH,
	MKT_SEND_INV,
	MKT_LOCAL_INV,
};

const char *mkt_op_name(enum mkt_op op);

struct mkt_wr {
	enum mkt_op op;
	struct ibv_sge sge[MKT_MAX_SGE];
	int num_sge;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	/* FETCH_ADD adds swap_add; ATOMIC_WRITE stores it */
	uint64_t compare;
	uint64_t swap_add;
	/* FLUSH: number of bytes from remote_addr */
	size_t flush_length;
	bool whole;		/* the MR, whatever its length */
	bool persistent;	/* or else globally visible */
};

int mkt_post_send(struct mkt_qp *qp, const struct mkt_wr *wr, uint64_t wr_id);
/*
 * Posts a WRITE of no bytes. Where packets get lost, one follows each request of several
 * packets: rxe may wait for such a request for ever if no other was sent (stock_retry).
 */
int mkt_post_tail(struct mkt_qp *qp, uint64_t wr_id);
int mkt_post_recv(struct mkt_qp *qp, const struct ibv_sge *sge, int num_sge,
		  uint64_t wr_id);
/* waits for one completion; ETIMEDOUT if nothing completes for minutes */
int mkt_poll(struct mkt_qp *qp, struct ibv_wc *wc);
/* binds a window of either type and waits; EIO if the bind is refused */
int mkt_bind_window(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr,
		    uint64_t addr, uint64_t length, unsigned int access);

struct mkt_result {
	enum ibv_wc_status status;	/* of the work request */
	bool received;			/* the rest is valid */
	enum ibv_wc_status recv_status;
	uint32_t byte_len;
	uint32_t imm;			/* 0 when none came */
};

/*
 * Posts @recv, which may be NULL, on the other side, then @wr on side @side.
 * Waits until both have completed.
 */
int mkt_exec(struct mkt_pair *pair, unsigned int side, const struct mkt_wr *wr,
	     const struct mkt_wr *recv, struct mkt_result *result);
/* runs a request without a receive; returns its status, or -1 */
int mkt_status(struct mkt_pair *pair, unsigned int side,
	       const struct mkt_wr *wr);

/*
 * arena.c: all memory of one side. Each byte, of the host or of the device, has
 * a position in the arena; @expect is the value that it should hold.
 */

#define MKT_MAX_MEMS 12
#define MKT_MAX_LEAVES 14

struct mkt_mem {
	uint8_t *host;		/* NULL: device memory */
	void *map;		/* what @host is a part of, to be unmapped */
	size_t map_size;
	struct ibv_dm *dm;
	size_t size;
	size_t at;		/* position of its first byte */
};

struct mkt_leaf {
	struct ibv_mr *mr;
	uint64_t addr;		/* what names its first byte in the MR */
	size_t length;
	size_t at;		/* position of its first byte */
	uint32_t *pos;		/* of every byte, where they are not in a row */
};

struct mkt_arena {
	struct mkt_dev *dev;
	struct mkt_mem mem[MKT_MAX_MEMS];
	unsigned int num_mems;
	struct mkt_leaf leaf[MKT_MAX_LEAVES];
	unsigned int num_leaves;
	size_t size;
	uint8_t *expect;
	uint8_t *seen;
};

#define MKT_ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

void mkt_arena_init(struct mkt_arena *arena, struct mkt_dev *dev);
int mkt_arena_add_host(struct mkt_arena *arena, size_t size);
/* adds @size bytes at @offset of a mapping, which the arena takes over */
int mkt_arena_add_map(struct mkt_arena *arena, void *map, size_t map_size,
		      size_t offset, size_t size);
int mkt_arena_add_dm(struct mkt_arena *arena, size_t size);
/* adds device memory of a class, 0 for the default; no message if there is none */
int mkt_arena_add_dm_class(struct mkt_arena *arena, size_t size,
			   uint64_t dm_class);
/*
 * Registers @length bytes of memory number @mem from @offset on. The MR's
 * addresses are the process's plus @shift, which is a multiple of the page
 * size.
 */
int mkt_arena_add_leaf(struct mkt_arena *arena, unsigned int mem, size_t offset,
		       size_t length, int access, uint64_t shift);
/*
 * Takes over an MR of any kind. Its bytes, from @addr on, are those of memory
 * number @mem from @offset on, or have the positions @pos. The arena takes over
 * @pos, which is malloc'ed.
 */
int mkt_arena_add_mr(struct mkt_arena *arena, struct ibv_mr *mr, uint64_t addr,
		     unsigned int mem, size_t offset, size_t length,
		     uint32_t *pos);
/*
 * one host memory of @host bytes, and device memory of @dm bytes unless that is
 * zero
 */
int mkt_arena_standard(struct mkt_arena *arena, struct mkt_dev *dev,
		       size_t host, size_t dm);
/* fills all memory with new random bytes, and expects them */
int mkt_arena_fill(struct mkt_arena *arena, struct mkt_rng *rng);
/* EBADMSG if a byte differs from the expected one */
int mkt_arena_check(struct mkt_arena *arena);
/* expects the current contents of @length bytes from @at on */
int mkt_arena_adopt(struct mkt_arena *arena, size_t at, size_t length);
int mkt_arena_free(struct mkt_arena *arena);

/* layout.c: the reference implementation */

struct mkt_block {
	unsigned int leaf;
	uint64_t offset;	/* of the first byte, from the leaf's start */
	uint64_t bytes;
	int64_t stride[IBMKEY_MAX_DIMS];
};

struct mkt_layout {
	unsigned int num_dims;	/* 0: a list, or indexed */
	uint64_t repeat[IBMKEY_MAX_DIMS];
	unsigned int num_blocks;
	struct mkt_block *block;
	/*
	 * Indexed: all blocks are in one leaf and have one length. Each begins a
	 * multiple of @unit bytes after @base, which is an offset in the leaf.
	 */
	unsigned int index_bytes;	/* 4 or 8, 0: not indexed */
	uint64_t base;
	uint64_t unit;
};

/* the block @count times, in one dimension */
struct mkt_layout mkt_layout_repeated(struct mkt_block *block, uint64_t count);

/* the positions of a key's bytes, in the order of its addresses */
struct mkt_map {
	uint32_t *pos;
	size_t length;
};

int mkt_layout_map(const struct mkt_arena *arena,
		   const struct mkt_layout *layout, struct mkt_map *map);
void mkt_map_free(struct mkt_map *map);
/* binds @key to @layout over the leaves of @arena */
int mkt_layout_bind(struct ibv_mr *key, const struct mkt_arena *arena,
		    const struct mkt_layout *layout, int access);
void mkt_layout_print(const struct mkt_layout *layout);
void mkt_layout_free(struct mkt_layout *layout);

/* draw.c: random layouts */

struct mkt_draw {
	size_t min_length;	/* of the whole key */
	size_t max_length;
	size_t max_block;
	unsigned int max_blocks;
	unsigned int max_dims;
	bool leaf_only;		/* leaf @leaf and no other */
	unsigned int leaf;
};

enum mkt_kind {
	MKT_LIST,
	MKT_INDEXED,		/* one block size, indices */
	MKT_STRIDED,		/* one block, one dimension */
	MKT_INTERLEAVED,	/* several blocks, one dimension */
	MKT_SUBARRAY,		/* one block, several dimensions */
	MKT_GENERAL,		/* several blocks, several dimensions */
	MKT_NUM_KINDS,
};

int mkt_draw_layout(struct mkt_layout *layout, struct mkt_rng *rng,
		    const struct mkt_arena *arena, enum mkt_kind kind,
		    const struct mkt_draw *draw);

/* xfer.c: transfers between two sides, and the bytes that they must change */

struct mkt_end {
	struct mkt_arena *arena;
	struct ibv_mr *mr;	/* a key or an ordinary MR */
	uint64_t addr;		/* of its first byte */
	struct mkt_map map;
};

/* an end that is the whole leaf number @leaf, without a key */
int mkt_end_leaf(struct mkt_end *end, struct mkt_arena *arena,
		 unsigned int leaf);
/* an end that is @key; binds it to @layout */
int mkt_end_key(struct mkt_end *end, struct ibv_mr *key,
		struct mkt_arena *arena, const struct mkt_layout *layout,
		int access);
void mkt_end_free(struct mkt_end *end);

struct mkt_xfer {
	enum mkt_op op;
	unsigned int side;		/* that posts the work request */
	struct mkt_end *end[2];		/* by side */
	size_t offset[2];
	size_t length;
	int num_sge;			/* pieces of each scatter/gather list */
	uint64_t compare;
	uint64_t swap_add;
};

/* the side that the bytes are read from */
static inline unsigned int mkt_xfer_source(const struct mkt_xfer *xfer)
{
	return xfer->op == MKT_READ ? !xfer->side : xfer->side;
}

/*
 * Runs a transfer, then compares every byte of both arenas. EIO if a request
 * failed, EBADMSG for wrong bytes or a wrong completion.
 */
int mkt_xfer(struct mkt_pair *pair, const struct mkt_xfer *xfer);
/* the same for @count requests that are posted at once; SEND, WRITE and READ */
int mkt_xfer_queue(struct mkt_pair *pair, const struct mkt_xfer *xfer,
		   unsigned int count);

/* nest.c: keys over keys */

#define MKT_MAX_NEST 16

struct mkt_nest {
	struct mkt_arena *arena;
	/* each key comes after those that it refers to */
	struct ibv_mr *key[MKT_MAX_NEST];
	struct mkt_map map[MKT_MAX_NEST];
	unsigned int num_keys;
};

/* @depth levels of random layouts over @arena; must be freed even if it fails */
int mkt_nest_build(struct mkt_nest *nest, struct mkt_rng *rng,
		   struct mkt_arena *arena, unsigned int depth);
/* the outermost key as an end; freeing @nest frees it */
void mkt_nest_end(const struct mkt_nest *nest, struct mkt_end *end);
int mkt_nest_free(struct mkt_nest *nest);

/* place.c: the physical place of device memory */

/*
 * Prepares the memory of class "p2p" or "pmem". Writes its place to @what: a
 * PCI function, or N of /dev/pmemN. Returns false if the machine has none.
 */
bool mkt_hardware(char *what, size_t size, const char *class);
struct mkt_pool {
	uint64_t total;		/* bytes; 0 before the pool's first use */
	uint64_t used;
	uint64_t high;
	uint64_t buffers;
};

/* the first pool of @dev in debugfs whose class begins with @class */
int mkt_pool(const struct mkt_dev *dev, const char *class,
	     struct mkt_pool *pool);
/* maps whole pages of @dm; NULL and errno; munmap() unmaps them */
void *mkt_dm_map(struct ibv_dm *dm, size_t length);
/* the physical address of a byte, 0 if unknown; needs root */
uint64_t mkt_physical(const void *at);
/* the NUMA node of RAM; -1 for an address that is not RAM */
/*
 * bytes of device memory that debugfs shows for a process, and its name in at
 * least 32 bytes; -1 if it has none
 */
int64_t mkt_owner_bytes(const struct mkt_dev *dev, pid_t pid, char *comm);
int mkt_node_of(uint64_t physical);
bool mkt_in_bar(uint64_t physical, const char *device);
bool mkt_in_iomem(uint64_t physical, const char *what);

/* faults.c: allocations that fail, on a kernel with fault injection */

bool mkt_write_file(const char *path, const char *text);
/* lets allocations that may sleep fail, too, without a line in the log for each */
bool mkt_faults_may_sleep(bool on);

/* netem.c: a link that loses packets or changes their order; needs root */

struct mkt_netem {
	const struct mkt_dev *dev;
	char netdev[32];
};

/* false if @dev is not in a namespace of its own */
bool mkt_netem_open(struct mkt_netem *netem, const struct mkt_dev *dev);
/* "loss 12%" happens to what the device sends; false if there is no netem */
bool mkt_netem_set(struct mkt_netem *netem, const char *what);
void mkt_netem_close(struct mkt_netem *netem);

/* setup.c: the objects that most tests need */

struct mkt_setup {
	struct mkt_dev dev[2];
	struct mkt_rng rng;
	struct mkt_arena arena[2];	/* of one side each, filled */
	struct mkt_end plain[2];	/* leaf 0 of each */
	struct ibv_mr *key[2];		/* unbound, NULL without ib_mkey */
	struct mkt_pair pair;
};

struct mkt_wants {
	enum ibv_mtu mtu;
	unsigned int flags;		/* MKT_QP_* */
	size_t host;			/* bytes of each arena */
	size_t dm;			/* zero: no device memory */
	unsigned int max_entries;	/* of the keys, zero: no keys */
};

/* an end that is the key of @side; binds it to a new random layout */
int mkt_end_draw(struct mkt_end *end, struct mkt_setup *setup,
		 unsigned int side, enum mkt_kind kind,
		 const struct mkt_draw *draw, int access);
/*
 * Runs one request of side 0 between its plain memory and @length bytes from
 * @addr on of @rkey; returns the status. An atomic adds or writes 3.
 */
int mkt_touch(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op,
	      uint64_t addr, uint32_t length);
/* the same; the QPs can be used again afterwards, or it returns -1 */
int mkt_try(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op,
	    uint64_t addr, uint32_t length);
/* @dev must have been opened */
int mkt_setup(struct mkt_setup *setup, const struct mkt_wants *wants,
	      const char *salt);
/* closes the devices, too; an error if an object could not be freed */
int mkt_teardown(struct mkt_setup *setup);

#endif /* MKEY_TEST_H */
