// SPDX-License-Identifier: Apache-2.0
// handlers.h - prototypes of the functions that routes.def names.
#ifndef VT_CLOUD_HANDLERS_H
#define VT_CLOUD_HANDLERS_H

#include "cloud/api/call.h"

#define ROUTE(method, path, versions, handler, permission, service, request, response, query)      \
  HANDLER(handler);
#include "cloud/api/routes.def"
#undef ROUTE

#endif
