/* SPDX-License-Identifier: GPL-2.0 */
/* Classes of device memory: the set-up of their tests. */
#ifndef MKEY_TEST_DM_CLASS_H
#define MKEY_TEST_DM_CLASS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mkey_harness.h"

enum place { HOST, NODE, P2P, PMEM };

FIXTURE(class)
{
	struct mkt_setup s;
	uint64_t which;
	unsigned int domain, bus, devfn;	/* of the PCI function */
	char what[64];
};

FIXTURE_VARIANT(class)
{
	enum place place;
	uint32_t bit;
};

FIXTURE_VARIANT_ADD(class, host) { .place = HOST, .bit = IBMKEY_DM_HOST };
FIXTURE_VARIANT_ADD(class, node) { .place = NODE, .bit = IBMKEY_DM_NODE };
FIXTURE_VARIANT_ADD(class, p2p) { .place = P2P, .bit = IBMKEY_DM_P2P };
FIXTURE_VARIANT_ADD(class, pmem) { .place = PMEM, .bit = IBMKEY_DM_PMEM };

/* the node that the device offers */
#define FAR_NODE 1

FIXTURE_SETUP(class)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		/* gigabytes are flushed, which takes long */
		.flags = MKT_QP_PATIENT,
		.host = 256 * 1024,
	};
	unsigned int slot, function;

	if (geteuid())
		SKIP(return, "not root: physical addresses are not shown");
	MKT_OPEN_EXTENDED(self->s.dev);
	if (!(self->s.dev[0].caps.dm_classes & variant->bit))
		SKIP(return, "%s does not offer this class", self->s.dev[0].name);
	switch (variant->place) {
	case HOST:
		self->which = IBMKEY_DM_HOST;
		break;
	case NODE:
		self->which = IBMKEY_DM_THE_NODE(FAR_NODE);
		break;
	case P2P:
		if (!mkt_hardware(self->what, sizeof(self->what), "p2p"))
			SKIP(return, "no PCI function with memory for peers");
		if (sscanf(self->what, "%x:%x:%x.%u", &self->domain, &self->bus,
			   &slot, &function) != 4)
			ASSERT_STREQ("a PCI function", self->what);
		self->devfn = slot << 3 | function;
		self->which = IBMKEY_DM_THE_P2P(self->domain, self->bus, self->devfn);
		break;
	case PMEM:
		if (!mkt_hardware(self->what, sizeof(self->what), "pmem"))
			SKIP(return, "no persistent memory");
		self->which = IBMKEY_DM_THE_PMEM(atoi(self->what));
		break;
	}
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
}

FIXTURE_TEARDOWN(class)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

#endif /* MKEY_TEST_DM_CLASS_H */
