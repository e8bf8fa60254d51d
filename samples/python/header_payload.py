#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Sends a header and parts of an array as one message; the peer receives it in other places.

usage: header_payload.py [DEVICE]
"""

# %% A header in a bytearray, a payload in a table. The peer has room for both elsewhere.
import sys

import numpy as np
from pyverbs import enums as e
from rc import Loop

import ibmkey

header = bytearray(b"rows 0-9, column 2")
table = np.arange(10 * 6, dtype=np.float32).reshape(10, 6)
their_header = bytearray(len(header))
their_column = np.zeros(10, dtype=np.float32)

# %% A list of buffers is one key. The column gets its own key, to which the list refers.
# The program's argument. In a notebook, it is the first device.
device = sys.argv[1] if len(sys.argv) == 2 else None
loop = Loop(device)
message = ibmkey.Key.from_list(loop.pd, [header, table[:, 2]])
place = ibmkey.Key.from_list(loop.pd, [their_header, their_column], e.IBV_ACCESS_LOCAL_WRITE)

# %% Each side needs one SGE.
loop.send(message.sge(), place.sge())
print(f"{message.length} bytes in one send")
assert their_header == header and (their_column == table[:, 2]).all()
print(their_header.decode(), their_column)

# %% Keys are closed before their connection. In a function, "with" does this.
message.close()
place.close()
loop.close()
