/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keys of MPI datatypes: a key takes the place of MPI_Pack(). Its bytes are those of
 * the datatype, in the order of the type map.
 *
 * A layout is a sequence of groups. A group is what one key can be bound to: blocks
 * that repeat in up to 8 dimensions. A layout of one group is one key; of several, a list
 * over a key for each group with dimensions.
 *
 * Functions return 0 or an errno value.
 */
#ifndef IBMKEY_MPI_H
#define IBMKEY_MPI_H

#include <stddef.h>
#include <stdint.h>
#include <mpi.h>
#include <infiniband/mkey.h>

#ifdef __cplusplus
extern "C" {
#endif

/** IBMKEY_MPI_MAX_BLOCKS - blocks of a layout in total, at most */
#define IBMKEY_MPI_MAX_BLOCKS 65536

/** IBMKEY_MPI_MAX_LEVELS - levels of nested datatypes, at most */
#define IBMKEY_MPI_MAX_LEVELS 64

/**
 * struct ibmkey_mpi_group - blocks that repeat together
 * @num_dims: number of dimensions; 0 for ranges, one after another
 * @repeat: repetitions in each dimension, outermost first
 * @num_blocks: number of blocks
 * @blocks: the blocks; addr is the offset from the buffer's address, which may
 *	be negative, as a two's complement; lkey is 0
 */
struct ibmkey_mpi_group {
	uint32_t num_dims;
	uint64_t repeat[IBMKEY_MAX_DIMS];
	uint32_t num_blocks;
	struct ibmkey_block *blocks;
};

/**
 * struct ibmkey_mpi_layout - the bytes of a datatype
 * @num_groups: number of groups; 0 if the datatype has no bytes
 * @groups: the groups, one after another
 * @length: bytes in total
 * @low: offset of the lowest byte from the buffer's address
 * @high: offset of the byte after the highest one
 * @part: on an error, the part of the datatype that is the reason
 */
struct ibmkey_mpi_layout {
	uint32_t num_groups;
	struct ibmkey_mpi_group *groups;
	uint64_t length;
	int64_t low;
	int64_t high;
	char part[96];
};

/**
 * ibmkey_mpi_layout - describe the bytes of elements of a datatype
 * @type: any datatype, committed or not
 * @count: number of elements
 * @layout: filled in; to be freed by ibmkey_mpi_free(), also after an error
 *
 * Return: 0; EOPNOTSUPP for a datatype that is not decoded, ENOSPC for more than
 * IBMKEY_MPI_MAX_BLOCKS blocks, ELOOP for too many levels, EOVERFLOW for an
 * offset that does not fit 64 bits; @layout->part names the part.
 */
int ibmkey_mpi_layout(MPI_Datatype type, int count,
		      struct ibmkey_mpi_layout *layout);

void ibmkey_mpi_free(struct ibmkey_mpi_layout *layout);

/** ibmkey_mpi_entries - return the entries of all keys of a layout */
uint32_t ibmkey_mpi_entries(const struct ibmkey_mpi_layout *layout);

struct ibmkey_mpi_key;

/**
 * ibmkey_mpi_bind - make a key of elements of a datatype
 * @pd: the protection domain
 * @buffer: the address that MPI_Send() would get
 * @mr: an MR with all bytes from @layout->low to @layout->high of @buffer
 * @layout: of ibmkey_mpi_layout(), with at least one byte
 * @access: enum ibv_access_flags
 * @key: set to the key, to be freed by ibmkey_mpi_unbind()
 *
 * Return: 0 or an errno value of ibmkey_alloc() or ibmkey_bind_interleaved().
 */
int ibmkey_mpi_bind(struct ibv_pd *pd, const void *buffer, struct ibv_mr *mr,
		    const struct ibmkey_mpi_layout *layout, unsigned int access,
		    struct ibmkey_mpi_key **key);

/** ibmkey_mpi_mr - return the MR of a key, for work requests and peers */
struct ibv_mr *ibmkey_mpi_mr(struct ibmkey_mpi_key *key);

/** ibmkey_mpi_unbind - destroy a key; EBUSY while a memory window refers to it */
int ibmkey_mpi_unbind(struct ibmkey_mpi_key *key);

#ifdef __cplusplus
}
#endif

#endif /* IBMKEY_MPI_H */
