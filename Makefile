# SPDX-License-Identifier: GPL-2.0
#
# Commands for people: see README.md. What Kbuild reads is in Kbuild.

TOP := $(patsubst %/,%,$(dir $(realpath $(lastword $(MAKEFILE_LIST)))))
SETUP := $(TOP)/tools/setup/setup

# What selects the kernel reaches the scripts through the environment.
export KERNEL DEBUG KSRC KDIR V TIMEOUT

.PHONY: help
help:
	@sed -n '/^## Commands/,/^## /p' $(TOP)/README.md

.PHONY: setup
setup:
	@$(SETUP) all

# $(value ...) so that CMD may hold quotes and dollar signs of its own.
export MKEY_CMD = $(value CMD)
export MKEY_SHARE = $(value SHARE)
.PHONY: vm-run
vm-run:
	@$(TOP)/tools/setup/cmd-vm-run
