# SPDX-License-Identifier: GPL-2.0
#
# Commands for people: see README.md. What Kbuild reads is in Kbuild.

TOP := $(patsubst %/,%,$(dir $(realpath $(lastword $(MAKEFILE_LIST)))))
CMD_DIR := $(TOP)/dev/setup

# The environment passes a command's arguments to the scripts. make must not expand
# them, because CMD may contain quotes and dollar signs.
export KERNEL DEBUG ARCH KSRC KDIR RUSTC LLVM INSTALL_MOD_PATH DESTDIR PREFIX DEB_VERSION DEBFULLNAME DEBEMAIL V TIMEOUT TESTS TEST_LIMIT GUESTS NODES LOSS DELAY HOST_TESTS BENCH BENCH_SAVE ICOUNT FUZZ FUZZ_SECONDS CHECKS
export MKEY_CMD = $(value CMD)
export MKEY_SHARE = $(value SHARE)
export MKEY_IMAGE = $(value IMAGE)
export MKEY_ULP = $(value M)

.PHONY: help
help:
	@sed -n '/^| command/,/^$$/p' $(TOP)/README.md

.PHONY: setup
setup:
	@$(CMD_DIR)/setup all

.PHONY: demo test test-long bench lint htmldocs rust-analyzer vm-run
demo test test-long bench lint htmldocs rust-analyzer vm-run:
	@$(CMD_DIR)/cmd-$@

.PHONY: fuzz
fuzz:
	@$(TOP)/rust/layout/fuzz/run

.PHONY: modules modules_install ulp
modules ulp:
	@$(CMD_DIR)/cmd-$@
modules_install:
	@$(CMD_DIR)/cmd-install modules

.PHONY: install uninstall
install:
	@$(CMD_DIR)/cmd-install all
uninstall:
	@$(CMD_DIR)/cmd-install remove

.PHONY: deb
deb:
	@$(CMD_DIR)/cmd-deb

# What this tree made; the cache outside it stays, see README.md.
.PHONY: clean
clean:
	rm -rf $(TOP)/out $(TOP)/rust-project.json
