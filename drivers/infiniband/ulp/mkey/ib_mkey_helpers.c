// SPDX-License-Identifier: GPL-2.0

#include "../../../../rust/helpers/helpers.c"
