// SPDX-License-Identifier: GPL-2.0

#include "mkey_ulp_client.c"
