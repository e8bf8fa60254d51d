// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Ioctls with random contents. Each of them must return, and all of them together must
 * leave nothing behind.
 */
#include "commands.h"
#include "mkey_harness.h"

FIXTURE(noise)
{
	struct mkt_commands c;
	struct mkt_rng rng;
};

FIXTURE_SETUP(noise)
{
	MKT_OPEN_SIDE(&self->c.dev, 0);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
	mkt_rng_init(&self->rng, _metadata->name);
}

FIXTURE_TEARDOWN(noise)
{
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

/* draws a number that is often a limit */
static uint64_t noise_number(struct mkt_rng *rng)
{
	switch (mkt_between(rng, 0, 4)) {
	case 0:
		return mkt_between(rng, 0, 20);
	case 1:
		return 0 - mkt_between(rng, 0, 20);
	case 2:
		return 1ull << mkt_between(rng, 0, 63);
	case 3:
		return mkt_rand(rng) & 0xffff;
	default:
		return mkt_rand(rng);
	}
}

/* commands with random contents stay within bounds */
TEST_F(noise, commands)
{
	unsigned int i, rounds = mkt_scale(20000, 2000), worked = 0;
	static uint8_t buffer[65536];
	int before, err;

	before = mkt_dev_count(&self->c.dev, "mr");
	for (i = 0; i < rounds; i++) {
		enum mkt_what what = mkt_between(&self->rng, 0,
						   NUM_COMMANDS - 1);
		unsigned int n = mkt_between(&self->rng, 1, 3);
		struct ib_uverbs_mkey_block block = self->c.block[1];
		struct ib_uverbs_mkey_sge sge = self->c.sge[1];
		struct ib_uverbs_mkey_indexed indexed = self->c.indexed;
		struct mkt_ioctl cmd;

		mkt_command_build(&self->c, &cmd, what);
		while (n--) {
			unsigned int a = mkt_between(&self->rng, 0,
						     cmd.hdr.num_attrs - 1);
			struct ib_uverbs_attr *attr = &cmd.attr[a];
			uint64_t noise = noise_number(&self->rng);

			switch (mkt_between(&self->rng, 0, 9)) {
			case 0:
				attr->attr_id = noise;
				break;
			case 1:
				attr->len = noise;
				/* do not overwrite memory that matters */
				attr->data = (uintptr_t)buffer;
				break;
			case 2:
				/*
				 * nor other memory: an address below the
				 * mappings
				 */
				attr->data = noise & 0xffff;
				break;
			case 3:
				memcpy((uint8_t *)&self->c.block[1] +
				       noise % (sizeof(block) / 8) * 8, &noise,
				       8);
				break;
			case 4:
				memcpy((uint8_t *)&self->c.sge[1] +
				       noise % (sizeof(sge) / 8) * 8, &noise,
				       8);
				break;
			case 5:
				self->c.repeat[noise & 1] =
					noise_number(&self->rng);
				break;
			case 6:
				memcpy((uint8_t *)&self->c.indexed +
				       noise % (sizeof(indexed) / 8) * 8,
				       &noise, 8);
				break;
			case 7:
				memcpy((uint8_t *)&self->c.bind[noise % 3] +
				       noise % (sizeof(self->c.bind[0]) / 8) * 8,
				       &noise, 8);
				break;
			default:
				attr->flags = noise;
			}
		}
		err = mkt_command_run(&self->c, &cmd);
		worked += !err;
		self->c.block[1] = block;
		self->c.sge[1] = sge;
		self->c.indexed = indexed;
		self->c.repeat[0] = 3;
		self->c.repeat[1] = 2;
	}
	TH_LOG("%u of %u commands were done", worked, rounds);

	/* and the key still works */
	for (i = BIND_LIST; i <= UNBIND; i++) {
		struct mkt_ioctl cmd;

		mkt_command_build(&self->c, &cmd, i);
		EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	}
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	}
}

TEST_HARNESS_MAIN
