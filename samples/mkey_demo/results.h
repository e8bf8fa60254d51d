/* SPDX-License-Identifier: GPL-2.0 */
/* The figures of the three acts, and the tables that show them. */
#ifndef MKEY_DEMO_RESULTS_H
#define MKEY_DEMO_RESULTS_H

#include "acts.h"

struct results {
	struct figures tile, pieces;
	struct counter_figures counter;
};

/* Prints the tables, and what their columns mean. */
void results_print(const struct results *results, unsigned int repetitions);

#endif /* MKEY_DEMO_RESULTS_H */
