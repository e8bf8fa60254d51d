/* SPDX-License-Identifier: GPL-2.0 */
/* One valid command of each method, which a test changes. */
#ifndef MKEY_TEST_COMMANDS_H
#define MKEY_TEST_COMMANDS_H

#include "mkey_test.h"
#include "raw.h"

/* all of them succeed if they are not changed */
enum mkt_what {
	CREATE, BIND_LIST, BIND_INDEXED, BIND_INTERLEAVED, QUERY, UNBIND, CAPS,
	DM_COPY, DM_ALLOC, DM_EXPORT, DM_VIEW, BIND_MANY, NUM_COMMANDS,
};

/* the objects of the commands, which point into this structure */
struct mkt_commands {
	struct mkt_dev dev;
	struct mkt_arena arena;
	struct ibv_mr *key;		/* of four entries */
	struct ibv_mr *other;		/* the same, for BIND_MANY */
	struct ibv_mr *third;
	uint64_t repeat[2];
	struct ib_uverbs_mkey_sge sge[2];
	struct ib_uverbs_mkey_block block[2];
	struct ib_uverbs_mkey_indexed indexed;
	uint64_t indices[3];
	struct ib_uverbs_mkey_bind bind[3];	/* list, blocks, indexed */
	struct ib_uverbs_mkey_info info;
	uint32_t handles[3];
	uint32_t failed;
	uint32_t lkey, rkey;
	/* commands copy 64 of them; with a wrong length they may copy all */
	uint8_t bytes[4096];
	int32_t exported;
	uint64_t viewed;
	int first_fd;			/* what is open from here on came of a command */
	/* an unmapped page; the page before it is mapped */
	void *nowhere;
};

/* @dev must have been opened */
int mkt_commands_setup(struct mkt_commands *c);
int mkt_commands_teardown(struct mkt_commands *c);
void mkt_command_build(struct mkt_commands *c, struct mkt_ioctl *cmd,
		       enum mkt_what what);
/* runs the command and destroys the object that it makes */
int mkt_command_run(struct mkt_commands *c, struct mkt_ioctl *cmd);

#endif /* MKEY_TEST_COMMANDS_H */
