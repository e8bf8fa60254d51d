/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Caches of models: SHAPE(name, layers, bytes of a piece, bytes in every fifth layer, blocks). Both
 * caches of a run are in the memory of one guest, so those with large pieces have fewer blocks than
 * in use. kv_mooncake.py reads these lines, too.
 */
SHAPE("32 layers, 0.8 KB", 32, 800, 800, 4000)
SHAPE("61 layers, 4 KB", 61, 4096, 4096, 256)
SHAPE("61 layers, 16 KB", 61, 16384, 16384, 64)
SHAPE("101 layers, 45 KB", 101, 46080, 23040, 32)
