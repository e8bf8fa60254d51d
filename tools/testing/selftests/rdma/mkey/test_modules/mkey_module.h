/* SPDX-License-Identifier: GPL-2.0 */
/* What the test modules share: conditions, waiting for a completion, and comparing memory. */
#ifndef MKEY_MODULE_H
#define MKEY_MODULE_H

#include <linux/delay.h>
#include <linux/string.h>

#include "mkey_ulp.h"

/* Returns -EIO from the caller, and logs the place, unless the condition holds. */
#define expect(condition)                                                    \
	do {                                                                 \
		if (!(condition)) {                                          \
			pr_err("%s: %s:%d: %s does not hold\n", KBUILD_MODNAME, \
			       __func__, __LINE__, #condition);              \
			return -EIO;                                         \
		}                                                            \
	} while (0)

/* The same unless a call has this result. */
#define expect_is(call, want)                                                \
	do {                                                                 \
		int _is = (call);                                            \
									     \
		if (_is != (want)) {                                         \
			pr_err("%s: %s:%d: %s is %d, not %s\n", KBUILD_MODNAME, \
			       __func__, __LINE__, #call, _is, #want);       \
			return -EIO;                                         \
		}                                                            \
	} while (0)

/* Waits for a completion of @side. Returns 0 or -ETIMEDOUT. */
static inline int module_wait(struct ulp_side *side, struct ib_wc *wc)
{
	unsigned long end = jiffies + 60 * HZ;

	while (!ib_poll_cq(side->cq, 1, wc)) {
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		usleep_range(10, 20);
	}

	return 0;
}

/* Compares a side's memory to what it should hold. The log has the first byte that differs. */
static inline int module_same(struct ulp_side *side, const u8 *memory, const u8 *expected,
			      u32 size)
{
	u32 i;

	if (!memcmp(memory, expected, size))
		return 0;
	for (i = 0; memory[i] == expected[i]; i++)
		;
	pr_err("%s: byte %u of %s is %#x, not %#x\n", KBUILD_MODNAME, i,
	       dev_name(&side->device->dev), memory[i], expected[i]);

	return -EIO;
}

#endif /* MKEY_MODULE_H */
