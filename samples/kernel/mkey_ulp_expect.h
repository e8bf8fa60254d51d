/* SPDX-License-Identifier: GPL-2.0 */
/* Reports a condition that does not hold, with its line. */
#ifndef MKEY_ULP_EXPECT_H
#define MKEY_ULP_EXPECT_H

/*
 * Returns -EIO from the caller, and logs the line, unless the condition holds.
 */
#define expect(condition)                                                    \
	do {                                                                 \
		if (!(condition)) {                                          \
			pr_err("mkey_ulp: line %d: %s does not hold\n",      \
			       __LINE__, #condition);                        \
			return -EIO;                                         \
		}                                                            \
	} while (0)

#endif /* MKEY_ULP_EXPECT_H */
