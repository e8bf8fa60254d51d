/* SPDX-License-Identifier: GPL-2.0 */
/* What the test modules share: conditions, and waiting for a completion. */
#ifndef MKEY_MODULE_H
#define MKEY_MODULE_H

#include <linux/delay.h>

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

#endif /* MKEY_MODULE_H */
