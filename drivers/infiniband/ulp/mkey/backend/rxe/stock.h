/* SPDX-License-Identifier: GPL-2.0 */
/* Stock rxe, called directly: internal to the C half of the rxe backend. */
#ifndef IB_MKEY_RXE_STOCK_H
#define IB_MKEY_RXE_STOCK_H

#include <linux/static_call.h>

#include "rxe.h"
#include "rxe_loc.h"

enum rxe_function {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) RXE_FN_##name,
#include "functions.h"
#undef RXE_FUNCTION
	RXE_NUM_FUNCTIONS,
};

#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
	type stock_##name parameters;
#include "functions.h"
#undef RXE_FUNCTION

/* Static calls of the stock code of a redirected function, past the redirection. */
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure) \
	DECLARE_STATIC_CALL(rxe_past_##name, stock_##name);
#include "functions.h"
#undef RXE_FUNCTION

void ib_mkey_rxe_stock_set(const unsigned long addresses[RXE_NUM_FUNCTIONS]);
void ib_mkey_rxe_stock_reset(void);

#endif /* IB_MKEY_RXE_STOCK_H */
