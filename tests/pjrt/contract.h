// SPDX-License-Identifier: Apache-2.0
// contract.h - the cases that hold for every plugin, in four files; contract_test.c runs them.
#ifndef VT_TESTS_CONTRACT_H
#define VT_TESTS_CONTRACT_H

#include "plugin_support.h"

extern plugin contract_plugin;
extern PJRT_Client *contract_client;
#define P      (&contract_plugin)
#define CLIENT contract_client

// Leaves the running case where the plugin's table is too old to have the slot.
#define NEEDS(slot)                                                                                \
  do {                                                                                             \
    if (!plugin_has(P, SLOT_##slot)) skip();                                                       \
  } while (0)

int contract_buffers(void); // contract_buffers.c: host arrays, copies, layouts, lifetimes
int contract_run(void);     // contract_run.c: programs, executables, events
int contract_grid(void);    // contract_grid.c: replicas and partitions
int contract_setup(void **state);
int contract_teardown(void **state);

#endif
