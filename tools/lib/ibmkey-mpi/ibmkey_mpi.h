/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keys of MPI datatypes. A device that accesses memory through such a key needs no
 * MPI_Pack(): the bytes of the key are those of the datatype, in the order of the type map.
 *
 * A layout is a sequence of groups. A group describes one key: blocks that repeat in up to
 * 8 dimensions. Blocks are in memory, or in the key of an earlier group. The key of the last
 * group is the key of the datatype.
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

/**
 * IBMKEY_MPI_MAX_ENTRIES - largest number of entries in all groups of a layout. A device may
 * have a lower limit for each key.
 */
#define IBMKEY_MPI_MAX_ENTRIES (1 << 20)

/** IBMKEY_MPI_MAX_LEVELS - largest number of levels of nested datatypes */
#define IBMKEY_MPI_MAX_LEVELS 64

/**
 * struct ibmkey_mpi_part - a part of a datatype
 * @combiner: the constructor, MPI_COMBINER_...
 * @level: its level; 1 is the outermost
 * @member: number of the member of that constructor; negative for the whole constructor
 */
struct ibmkey_mpi_part {
	int combiner;
	int level;
	int member;
};

/**
 * struct ibmkey_mpi_group - blocks that repeat together
 * @num_dims: number of dimensions; 0 for a list of ranges, one after another
 * @repeat: repetitions in each dimension, outermost first
 * @num_blocks: number of blocks
 * @blocks: the blocks. A block with lkey 0 is in memory, and addr is its offset from the
 *	buffer's address, as a two's complement if it is negative. A block with lkey n is in
 *	the key of groups[n - 1], and addr is its offset in that key
 * @part: the part of the datatype that needs this group
 */
struct ibmkey_mpi_group {
	uint32_t num_dims;
	uint64_t repeat[IBMKEY_MAX_DIMS];
	uint32_t num_blocks;
	struct ibmkey_block *blocks;
	struct ibmkey_mpi_part part;
};

/**
 * struct ibmkey_mpi_layout - the bytes of a datatype
 * @num_groups: number of groups; 0 if the datatype has no bytes
 * @groups: the groups; each refers to earlier ones only
 * @length: bytes in total
 * @low: offset of the lowest byte from the buffer's address
 * @high: offset of the byte after the highest one
 * @part: on an error, the part of the datatype that is the reason
 * @form: private
 */
struct ibmkey_mpi_layout {
	uint32_t num_groups;
	struct ibmkey_mpi_group *groups;
	uint64_t length;
	int64_t low;
	int64_t high;
	char part[96];
	void *form;
};

/**
 * ibmkey_mpi_layout - describe the bytes of elements of a datatype
 * @type: any datatype, committed or not
 * @count: number of elements
 * @layout: filled in; to be freed by ibmkey_mpi_free(), also after an error
 *
 * Return: 0; EINVAL for a negative @count or MPI_DATATYPE_NULL; EOPNOTSUPP for a constructor
 * that this library does not decode; ENOSPC for more than IBMKEY_MPI_MAX_ENTRIES entries; ELOOP
 * for too many levels; EOVERFLOW for an offset that does not fit 64 bits. @layout->part names the
 * part.
 */
int ibmkey_mpi_layout(MPI_Datatype type, int count,
		      struct ibmkey_mpi_layout *layout);

/** ibmkey_mpi_free - free the groups of a layout, also after an error */
void ibmkey_mpi_free(struct ibmkey_mpi_layout *layout);

/** ibmkey_mpi_entries - return the entries of all keys of a layout */
uint32_t ibmkey_mpi_entries(const struct ibmkey_mpi_layout *layout);

struct ibmkey_mpi_key;

/**
 * ibmkey_mpi_bind - make a key of elements of a datatype
 * @pd: the protection domain
 * @buffer: the address that MPI_Send() would get
 * @mr: an MR that contains the bytes from @buffer + @layout->low to
 *	@buffer + @layout->high - 1
 * @layout: of ibmkey_mpi_layout(), with at least one byte
 * @access: enum ibv_access_flags
 * @key: set to the key, to be freed by ibmkey_mpi_unbind()
 *
 * Keys over keys may have more levels or pieces than the device allows. This function then makes
 * one key with more entries, or a list of keys.
 *
 * Return: 0; EINVAL for a pointer that is NULL, except @buffer, or a layout without bytes;
 * ENOSPC if a group has more entries than the device allows for a key; ELOOP if the list of keys
 * is refused, too; or an errno value of ibmkey_alloc() or ibmkey_bind_interleaved().
 * ibmkey_mpi_last_error() tells the part of the datatype.
 */
int ibmkey_mpi_bind(struct ibv_pd *pd, const void *buffer, struct ibv_mr *mr,
		    const struct ibmkey_mpi_layout *layout, unsigned int access,
		    struct ibmkey_mpi_key **key);

/**
 * ibmkey_mpi_last_error - explain the last error of ibmkey_mpi_bind() in this thread
 *
 * Return: a sentence with the part of the datatype and the reason, which stays valid until
 * the next call of a function of this library in this thread.
 */
const char *ibmkey_mpi_last_error(void);

/** ibmkey_mpi_mr - return the MR of a key, for work requests and peers; NULL for NULL */
struct ibv_mr *ibmkey_mpi_mr(struct ibmkey_mpi_key *key);

/** ibmkey_mpi_unbind - destroy a key, or NULL; EBUSY while a memory window refers to it */
int ibmkey_mpi_unbind(struct ibmkey_mpi_key *key);

#ifdef __cplusplus
}
#endif

#endif /* IBMKEY_MPI_H */
