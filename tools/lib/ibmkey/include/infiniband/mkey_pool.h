/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: pools of keys. Include <infiniband/mkey.h>, which says what errors mean
 * and what comp_mask is for.
 */
#ifndef INFINIBAND_MKEY_POOL_H
#define INFINIBAND_MKEY_POOL_H

#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibmkey_pool;

/**
 * ibmkey_pool_create - make a pool of keys
 * @pd: protection domain of the keys, which must outlive the pool
 * @max_entries: largest number of entries, blocks or indices of each key, as for
 *	ibmkey_alloc()
 * @max_keys: largest number of keys, not zero
 *
 * The pool creates the first key now, and another one when a thread takes a key
 * and none is free. Any number of threads may use a pool at once.
 *
 * Return: the pool; or NULL and errno.
 */
struct ibmkey_pool *ibmkey_pool_create(struct ibv_pd *pd, uint32_t max_entries,
				       uint32_t max_keys);

/**
 * ibmkey_pool_get - take a key from a pool
 * @pool: a pool
 *
 * The key is unbound. If one is free, this takes a lock but no system call.
 *
 * Return: the key, which ibmkey_pool_put() returns and which must not be
 * deregistered; or NULL and errno: EAGAIN if all are in use.
 */
struct ibv_mr *ibmkey_pool_get(struct ibmkey_pool *pool);

/**
 * ibmkey_pool_put - return a key to its pool
 * @pool: a pool
 * @mkey: a key that ibmkey_pool_get() returned, bound or not
 *
 * Unbinds the key: when this returns, no access by the key is in progress. The lkey
 * and rkey change as for ibmkey_unbind(). So a peer that still uses the old rkey
 * cannot reach the layouts of the next owner of the key, until the rkey has its old value
 * again, after 256 changes. If you do not trust the peers, create and destroy keys instead.
 *
 * Return: 0, or an errno value. EBUSY while a memory window or another key refers to the
 * key, which the caller still owns then. EINVAL for a key that the caller does not own: it
 * was returned before, or it is not of this pool.
 */
int ibmkey_pool_put(struct ibmkey_pool *pool, struct ibv_mr *mkey);

/**
 * ibmkey_pool_destroy - destroy a pool and its keys
 * @pool: a pool, or NULL
 *
 * Return: 0; EBUSY, with nothing changed, if a key was not returned; or another
 * errno value.
 */
int ibmkey_pool_destroy(struct ibmkey_pool *pool);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MKEY_POOL_H */
