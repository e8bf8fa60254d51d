/* SPDX-License-Identifier: GPL-2.0 */
/* The settings of a test run, random numbers, and the two devices. Part of mkey_test.h. */
#ifndef MKEY_TEST_DEV_H
#define MKEY_TEST_DEV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

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
/* of a clock that only goes forward */
double mkt_seconds(void);
/* waits for a child process for @seconds; true if it has ended, with @status */
bool mkt_ended(pid_t pid, unsigned int seconds, int *status);
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
/* true if the device has memory on demand */
bool mkt_dev_on_demand(const struct mkt_dev *dev);
/* opens another context of the device with libibverbs; NULL if that fails */
struct ibv_context *mkt_dev_reopen(const struct mkt_dev *dev);

/* calls @run in the network namespace of @dev; ENOENT if there is none */
int mkt_in_netns(const struct mkt_dev *dev, int (*run)(void *arg), void *arg);

/*
 * number of objects of one kind ("qp", "mr", ...) of the device, -1 if unknown
 */
int mkt_dev_count(const struct mkt_dev *dev, const char *kind);
/* the value of a counter of the device ("sent_pkts", ...), 0 if it has none */
unsigned long mkt_dev_counter(const struct mkt_dev *dev, const char *name);

#endif /* MKEY_TEST_DEV_H */
