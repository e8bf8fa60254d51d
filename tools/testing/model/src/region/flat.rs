// SPDX-License-Identifier: GPL-2.0

//! Not part of the model.
